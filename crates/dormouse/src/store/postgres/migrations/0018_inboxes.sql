-- How many bytes wait in an inbox, so that it can be bounded without looking into it.
alter table dormouse.instances add column inbox_bytes bigint not null default 0;
update dormouse.instances i set inbox_bytes = held.bytes
from (
    select s.instance, sum(octet_length(s.payload::text)) as bytes from dormouse.signals s
    where not s.consumed group by s.instance
) held
where i.id = held.instance and i.inbox > 0;

-- How much the sender lets an inbox hold; null: as much as SQL alone does.
alter type dormouse.delivery add attribute inbox_max integer, add attribute inbox_bytes_max bigint;
alter type dormouse.arrival add attribute inbox_max integer, add attribute inbox_bytes_max bigint;
