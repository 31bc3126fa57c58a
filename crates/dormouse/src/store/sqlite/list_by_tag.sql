-- By the primary key of tags, newest first: needs a namespace; walks what has the first tag. The cross join keeps that
-- order: left to itself, SQLite may walk the table, which is in that order too.
select i.id, i.namespace, i.machine, i.version, i.key, i.status, i.step, i.seq, i.attempt, i.queue, i.priority,
    i.lane, i.share, i.trace, i.cost, i.blocked, i.paused, i.cancel_requested, i.cancel_reason, i.cancelled_with, i.tags, i.parent,
    i.parent_round, i.parent_index, i.awaits, i.wake_at, i.wake, i.inbox, i.barrier, i.round, i.worker,
    substr(i.last_error, 1, 1000) as last_error, i.created_at, i.changed_at, i.ended_at
from tags t cross join instances i on i.id = t.instance
where t.namespace = :namespace and t.tag = :tag and (:after is null or t.instance < :after)
    and (:machine is null or i.machine = :machine)
    and (:status is null or i.status = :status) and (:queue is null or i.queue = :queue)
    and (:created_from is null or i.created_at >= :created_from)
    and (:created_before is null or i.created_at < :created_before)
    and (:roots = 0 or i.parent is null)
    and (:tags is null or not exists (
        select 1 from json_each(:tags) wanted where wanted.value not in (select value from json_each(i.tags))
    ))
order by t.instance desc limit :limit
