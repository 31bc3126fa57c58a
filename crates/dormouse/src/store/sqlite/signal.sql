-- One signal in an inbox.
select id, name, payload, dedup_key, at from signals where id = ?1
