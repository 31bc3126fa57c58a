-- Ended instances past their retention, by instances_ended; never a child that its parent may still
-- read, now or when it is retried within the retention.
select id, namespace, queue, machine, version, step, status, round > 0, tags from instances i
where ended_at <= ?1 and ended_at is not null and (?3 is null or namespace = ?3)
    and not exists (
        select 1 from instances p
        where p.id = i.parent and p.round = i.parent_round and (p.ended_at is null or p.ended_at > ?1)
    )
order by ended_at
limit ?2
