-- Who holds a key, by instances_key_guard.
select id from instances where namespace = ?1 and key_guard = ?2 and key_guard is not null
