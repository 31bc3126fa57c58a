-- The next priority of one machine and namespace with rows that can run, by a hop in instances_claim.
select priority from instances indexed by instances_claim
where status = 'runnable' and blocked = 0 and paused = 0
    and queue = ?1 and machine = ?2 and version = ?3 and namespace = ?4 and priority > ?5
order by priority
limit 1
