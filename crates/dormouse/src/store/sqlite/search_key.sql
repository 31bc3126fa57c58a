-- The rows whose key starts like this, by instances_key.
select id from instances where namespace = ?1 and key is not null and key >= ?2 and key < ?3 limit ?4
