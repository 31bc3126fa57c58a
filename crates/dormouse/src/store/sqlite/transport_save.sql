-- How much of its limits a transport has used.
update transports set spent = ?2, spent_at = ?3, failures = ?4, opens = ?5, epoch = ?6, opened_at = ?7, open_until = ?8,
    probe_until = ?9, error = ?10, turn = ?11
where name = ?1
