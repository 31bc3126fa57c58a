-- A row without its documents, by the primary key, or by its key.
select id, namespace, machine, version, key, status, step, seq, attempt, queue, priority, lane, share, trace, cost, blocked,
    paused, cancel_requested, cancel_reason, cancelled_with, tags, parent, parent_round, parent_index,
    awaits, wake_at, wake, inbox, barrier, round, worker, last_error, created_at, changed_at, ended_at
from dormouse.instances where id = coalesce($2, dormouse.find_key($1, $3)) and namespace = $1
