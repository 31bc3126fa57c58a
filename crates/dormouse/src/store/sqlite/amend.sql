-- A signal in an inbox, by its id. The request to undo is no signal that anybody sent.
select name, payload, dedup_key from signals where id = ?1 and instance = ?2 and consumed = 0 and name <> ?3
