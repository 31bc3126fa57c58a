-- Newest first, by the primary key; every other condition filters the walk.
select id, namespace, machine, version, key, status, step, seq, attempt, queue, priority, lane, share, trace, cost, blocked, paused,
    cancel_requested, cancel_reason, cancelled_with, tags, parent, parent_round, parent_index, awaits, wake_at,
    wake, inbox, barrier, round, worker, substr(last_error, 1, 1000) as last_error, created_at, changed_at,
    ended_at
from instances
where (:after is null or id < :after)
    and (:namespace is null or namespace = :namespace) and (:machine is null or machine = :machine)
    and (:status is null or status = :status) and (:queue is null or queue = :queue)
    and (:created_from is null or created_at >= :created_from)
    and (:created_before is null or created_at < :created_before)
    and (:key is null or (key >= :key and key < :key_end))
    and (:roots = 0 or parent is null)
    and (:tags is null or not exists (
        select 1 from json_each(:tags) wanted where wanted.value not in (select value from json_each(tags))
    ))
order by id desc limit :limit
