-- What waits for an instance after one signal, in order of arrival, by signals_inbox.
select id, name, payload, dedup_key, at, trace from signals where instance = ?1 and consumed = 0 and id > ?2 order by id limit ?3
