-- The next namespace with a backlog of one machine, by a hop in instances_claim.
select namespace from instances
where status = 'runnable' and blocked = 0 and paused = 0
    and queue = ?1 and machine = ?2 and version = ?3 and namespace > ?4
order by namespace
limit 1
