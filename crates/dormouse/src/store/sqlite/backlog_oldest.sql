-- The next line of claimable rows (one queue, machine, version, namespace, priority and share) with its first row, by a
-- hop in instances_claim. The bound on runnable_at is past every row of the last line: without it, SQLite seeks to the
-- line's first row and walks over all the others.
select queue, machine, version, namespace, priority, coalesce(share, namespace), runnable_at from instances
    indexed by instances_claim
where status = 'runnable' and blocked = 0 and paused = 0
    and (queue, machine, version, namespace, priority, coalesce(share, namespace), runnable_at)
        > (?1, ?2, ?3, ?4, ?5, ?6, 9223372036854775807)
order by queue, machine, version, namespace, priority, coalesce(share, namespace), runnable_at, id
limit 1
