-- One signal in an inbox.
select id, name, payload, dedup_key, at, trace from signals where id = ?1
