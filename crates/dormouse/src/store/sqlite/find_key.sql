-- The newest instance with a key, by instances_key; a live one before an ended one.
select id from instances where namespace = ?1 and key = ?2 and key is not null
order by ended_at is not null, id desc limit 1
