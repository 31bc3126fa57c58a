-- Writes one instance's head back. Only the one writer runs this, in the transaction that loaded it.
update instances set
    status = ?2, step = ?3, seq = ?4, attempt = ?5, runnable_at = ?6, worker = ?7, wake_at = ?8, wake = ?9,
    awaits = ?10, inbox = ?11, barrier = ?12, round = ?13, joined = ?14, blocked = ?15, paused = ?16,
    cancel_requested = ?17, version = ?18, last_error = ?19, ended_at = ?20, changed_at = ?21,
    key_scope = ?22, output = ?23, state = coalesce(?24, state), cancel_reason = ?25, cancelled_with = ?26,
    crashes = ?27, crashes_seq = ?28, inbox_bytes = ?29, parked_until = ?30
where id = ?1
