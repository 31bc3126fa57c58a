-- The rows whose key starts like this, by instances_key.
select id from dormouse.instances where namespace = $2 and key is not null and key >= $3 and key < $4 limit $1
