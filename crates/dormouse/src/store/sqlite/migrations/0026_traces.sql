-- The trace that an instance is part of, as the header `traceparent` writes it; that in which a signal was sent; and that of
-- the instance that asks something of the outside. Null: none.
alter table instances add column trace text;
alter table signals add column trace text;
alter table interactions add column trace text;
