-- Resolves one interaction, once: the guard is its status.
update interactions set status = ?2, resolved_at = ?3, answered = ?4, error = ?5, output = ?6, send_at = null,
    answered_by = ?7
where id = ?1 and status in ('pending', 'dispatched')
