-- The first rows of one share, of one machine and priority, by instances_claim: no row that cannot run now is met.
select id, runnable_at from instances indexed by instances_claim
where status = 'runnable' and blocked = 0 and paused = 0
    and queue = ?1 and machine = ?2 and version = ?3 and namespace = ?4 and priority = ?5
    and coalesce(share, namespace) = ?6
order by runnable_at, id
limit ?7
