-- What those of a lane cost that could be claimed, by instances_lane.
select coalesce(sum(cost), 0) from (
    select min(cost, ?3) as cost from instances
    where lane is not null and status in ('executing', 'runnable') and namespace = ?1 and lane = ?2
        and status = 'runnable' and blocked = 0
    limit ?4
)
