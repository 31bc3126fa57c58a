-- What waits for an instance, in order of arrival, by signals_inbox.
select id, name, payload, dedup_key, at, trace from signals where instance = ?1 and consumed = 0 order by id
