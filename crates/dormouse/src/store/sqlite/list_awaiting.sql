-- Who is parked on a name, who has waited longest first, by instances_awaiting: hops over the distinct sets, then walks those that hold it.
-- The cross join keeps that order: left to itself, SQLite walks every parked row before it looks into its set.
with recursive sets (awaits) as (
    select min(awaits) from instances where status = 'awaiting_signal'
    union all
    select (select min(awaits) from instances where status = 'awaiting_signal' and awaits > sets.awaits)
    from sets where sets.awaits is not null
)
select i.id, i.namespace, i.machine, i.version, i.key, i.status, i.step, i.seq, i.attempt, i.queue, i.priority,
    i.lane, i.share, i.trace, i.cost, i.blocked, i.paused, i.cancel_requested, i.cancel_reason, i.cancelled_with, i.tags, i.parent,
    i.parent_round, i.parent_index, i.awaits, i.wake_at, i.wake, i.inbox, i.barrier, i.round, i.worker,
    substr(i.last_error, 1, 1000) as last_error, i.created_at, i.changed_at, i.ended_at, i.runnable_at as place_at
from sets
cross join instances i indexed by instances_awaiting on i.awaits = sets.awaits and i.status = 'awaiting_signal'
where :awaiting in (select value from json_each(sets.awaits))
    and (:after is null or (i.runnable_at, i.id) > (
        coalesce(:after_at, (select runnable_at from instances where id = :after)), :after
    ))
    and (:namespace is null or i.namespace = :namespace) and (:machine is null or i.machine = :machine)
    and (:status is null or i.status = :status) and (:queue is null or i.queue = :queue)
    and (:parent is null or i.parent = :parent)
    and (:key is null or (i.key >= :key and i.key < :key_end))
    and (:created_from is null or i.created_at >= :created_from)
    and (:created_before is null or i.created_at < :created_before)
    and (:roots = 0 or i.parent is null)
    and (:tags is null or not exists (
        select 1 from json_each(:tags) wanted where wanted.value not in (select value from json_each(i.tags))
    ))
order by i.runnable_at, i.id limit :limit
