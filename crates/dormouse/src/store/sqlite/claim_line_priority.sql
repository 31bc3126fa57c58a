-- The next priority of one machine with rows that can run, in any namespace, by a hop in instances_line.
select priority from instances indexed by instances_line
where status = 'runnable' and blocked = 0 and paused = 0
    and queue = ?1 and machine = ?2 and version = ?3 and priority > ?4
order by priority
limit 1
