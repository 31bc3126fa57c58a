-- Whether an end is plain: no parent waits for it, no lane is handed on, its key has no special scope, and every signal in its
-- inbox was received. Ownership is proved by worker and seq like in every commit.
select namespace, queue, machine, version, step from instances
where id = ?1 and seq = ?2 and worker = ?3
    and parent is null and lane is null and key_scope is null and cancel_requested = 0 and inbox <= ?4
