-- Takes one row. The writer's transaction guarantees that it is still runnable.
update instances set status = 'executing', worker = ?2, changed_at = ?3 where id = ?1
