-- Takes one ended child off its parent's barrier, if the parent still waits for that round and for another end: the
-- last one is decided by the rules.
update instances set barrier = barrier - 1
where id = ?1 and round = ?2 and status = 'awaiting_children' and barrier > 1
