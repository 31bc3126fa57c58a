-- What is kept in a namespace after one signal, in order of arrival, by kept_namespace.
select id, key, name, payload, dedup_key, at, until from kept where namespace = ?1 and id > ?2 order by id limit ?3
