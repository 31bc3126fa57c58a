-- Removes one received signal; what has a dedup key leaves that behind (see consume_keep.sql).
delete from signals where id = ?1 and instance = ?2 and consumed = 0 and dedup_key is null
returning name, payload
