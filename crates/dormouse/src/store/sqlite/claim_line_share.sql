-- The next share of one machine and priority in any namespace, with its first row, by a hop in instances_line.
select coalesce(share, namespace), id, runnable_at from instances indexed by instances_line
where status = 'runnable' and blocked = 0 and paused = 0
    and queue = ?1 and machine = ?2 and version = ?3 and priority = ?4 and coalesce(share, namespace) >= ?5
order by coalesce(share, namespace), runnable_at, id
limit 1
