-- Who is parked on a name, by instances_awaiting: hops over the distinct sets, then walks those that hold it.
with recursive sets (awaits) as (
    select min(awaits) from instances where status = 'awaiting_signal'
    union all
    select (select min(awaits) from instances where status = 'awaiting_signal' and awaits > sets.awaits)
    from sets where sets.awaits is not null
)
select i.* from sets
join json_each(sets.awaits) name on name.value = :awaiting
join instances i on i.awaits = sets.awaits and i.status = 'awaiting_signal'
where (:after is null or i.id < :after)
    and (:namespace is null or i.namespace = :namespace) and (:machine is null or i.machine = :machine)
    and (:queue is null or i.queue = :queue)
    and (:created_from is null or i.created_at >= :created_from)
    and (:created_before is null or i.created_at < :created_before)
order by i.id desc limit :limit
