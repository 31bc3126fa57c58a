-- Whether an end is plain: no parent waits for it, its key has no special scope, and every signal in its inbox was received. Its
-- lane, if it has one, is handed on. Ownership is proved by worker and seq like in every commit.
select namespace, queue, machine, version, step, lane from instances
where id = ?1 and seq = ?2 and worker = ?3
    and parent is null and key_scope is null and cancel_requested = 0 and inbox <= ?4
