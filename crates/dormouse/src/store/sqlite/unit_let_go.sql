-- Resolves what a closed unit still had open, by interactions_item.
update interactions set status = ?2, resolved_at = ?3, send_at = null
where unit = ?1 and status in ('pending', 'dispatched')
