-- One instance's, oldest first, by units_round and interactions_item.
with items as materialized (
    select * from dormouse.interactions
    where unit = any (array(select id from dormouse.units where instance = $11))
)
select i.* from items i
where i.opened_at is not null and ($1::bigint is null or i.id > $1)
    and ($2::text is null or i.namespace = $2) and ($3::text is null or i.status = $3)
    and ($4::text is null or i.transport = $4) and ($5::text is null or i.machine = $5)
    and ($6::text is null or i.step = $6)
    and ($7::text is null or i.for_assignee = $7 or (i.assignee = $7 and i.assigned_until > dormouse.now()))
    and ($8::text is null or i.for_group = $8) and ($9::timestamptz is null or i.opened_at < $9)
order by i.id limit $10
