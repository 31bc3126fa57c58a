-- What the next in a lane cost, by instances_lane: strict order.
select min(cost, ?3) from instances
where lane is not null and status in ('executing', 'runnable') and namespace = ?1 and lane = ?2
    and status = 'runnable' and blocked = 1 and paused = 0
order by priority, runnable_at, id
limit ?4
