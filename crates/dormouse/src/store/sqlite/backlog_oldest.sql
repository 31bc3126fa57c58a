-- The next line of claimable rows (one queue, machine, version, namespace and priority) with its first row, by a
-- hop in instances_claim.
select queue, machine, version, namespace, priority, runnable_at from instances
where status = 'runnable' and blocked = 0 and paused = 0
    and (queue, machine, version, namespace, priority) > (?1, ?2, ?3, ?4, ?5)
order by queue, machine, version, namespace, priority, runnable_at, id
limit 1
