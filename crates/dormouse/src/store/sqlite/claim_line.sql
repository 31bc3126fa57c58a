-- The first rows of one machine in every namespace, by instances_line: no row that cannot run now is met.
select id, priority, runnable_at from instances indexed by instances_line
where status = 'runnable' and blocked = 0 and paused = 0 and queue = ?1 and machine = ?2 and version = ?3
order by priority, runnable_at, id
limit ?4
