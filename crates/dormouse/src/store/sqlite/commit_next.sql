-- The run-ahead commit: touches no indexed column, proves ownership by worker and seq. No hot statement has a
-- RETURNING clause: SQLite would open a temporary table for each run of it.
update instances set step = ?4, state = ?5, seq = seq + 1, attempt = 0, changed_at = ?6, last_error = null
where id = ?1 and seq = ?2 and worker = ?3 and version = ?7
    and wake is null and inbox = 0 and cancel_requested = 0 and paused = 0
