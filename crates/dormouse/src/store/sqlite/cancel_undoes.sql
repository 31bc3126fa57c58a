-- Whether a cancel makes an instance undo what it did: its machine says so of its step, and nobody has asked it before
-- (signals_dedup).
select 1 from machines m, json_each(m.told, '$.undo_on_cancel') s
where m.name = ?1 and m.version = ?2 and s.value = ?3
    and not exists (select 1 from signals where instance = ?4 and dedup_key = '$cancel')
