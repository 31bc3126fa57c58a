update units set status = ?2, completed = ?3, failed = ?4, next_item = ?5, closed_at = ?6 where id = ?1
