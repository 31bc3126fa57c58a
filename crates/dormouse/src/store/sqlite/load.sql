-- The head of one instance: everything a transition decides on, without its documents.
select id, namespace, status, step, seq, attempt, queue, runnable_at, worker, wake_at, wake, awaits, inbox,
    barrier, round, parent, parent_round, joined, lane, blocked, paused, cancel_requested, keeps_history,
    key, key_scope, version, last_error, ended_at, machine, cancel_reason, cancelled_with, crashes, crashes_seq,
    parked_until, inbox_bytes
from instances where id = ?1
