-- The plain end. The writer has just read that the row is one.
update instances set status = 'done', seq = seq + 1, worker = null, inbox = 0, inbox_bytes = 0, joined = 1,
    changed_at = ?2, ended_at = ?2, last_error = null, output = ?3
where id = ?1
