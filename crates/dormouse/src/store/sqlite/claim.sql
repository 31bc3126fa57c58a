-- The first rows of one machine's backlog, by instances_claim: no row that cannot run now is met.
select id, priority, runnable_at from instances
where status = 'runnable' and blocked = 0 and paused = 0
    and queue = ?1 and machine = ?2 and version = ?3 and namespace = ?4
order by priority, runnable_at, id
limit ?5
