-- How many bytes wait in an inbox, so that it can be bounded without looking into it.
alter table instances add column inbox_bytes integer not null default 0;
update instances set inbox_bytes = (
    select coalesce(sum(octet_length(payload)), 0) from signals where instance = instances.id and consumed = 0
) where inbox > 0;
