-- What is kept for a key after one signal, in order of arrival, by kept_key.
select id, key, name, payload, dedup_key, at, until from kept
where namespace = ?1 and key = ?4 and id > ?2 order by id limit ?3
