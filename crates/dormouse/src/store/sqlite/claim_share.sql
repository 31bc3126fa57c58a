-- The next share of one machine, priority and namespace, with its first row, by a hop in instances_claim.
select coalesce(share, namespace), id, runnable_at from instances indexed by instances_claim
where status = 'runnable' and blocked = 0 and paused = 0
    and queue = ?1 and machine = ?2 and version = ?3 and namespace = ?4 and priority = ?5
    and coalesce(share, namespace) >= ?6
order by coalesce(share, namespace), runnable_at, id
limit 1
