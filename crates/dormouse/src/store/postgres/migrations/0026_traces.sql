-- expands: new columns without a default, new attributes at the end of what is sent as JSON, one more column in a claim.
-- The trace that an instance is part of, as the header `traceparent` writes it; that in which a signal was sent; and that of
-- the instance that asks something of the outside. Null: none.
alter table dormouse.instances add column trace text collate "C";
alter table dormouse.signals add column trace text collate "C";
alter table dormouse.interactions add column trace text collate "C";
alter type dormouse.arrival add attribute trace text;
alter type dormouse.delivery add attribute trace text;
