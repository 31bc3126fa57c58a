-- What those cost that are before one in its lane's line, and how many were counted, by instances_lane.
select coalesce(sum(cost), 0), count(*) from (
    select min(b.cost, ?3) as cost from instances b
    where b.lane is not null and b.status in ('executing', 'runnable') and b.namespace = ?1 and b.lane = ?2
        and b.status = 'runnable' and b.blocked = 1 and b.paused = 0
        and (b.priority, b.runnable_at, b.id) < (select i.priority, i.runnable_at, i.id from instances i where i.id = ?4)
    limit ?5
)
