-- Who holds a lane, by instances_lane.
select id from instances
where lane is not null and status in ('executing', 'runnable') and namespace = ?1 and lane = ?2 and blocked = 0
    and id <> ?3
limit ?4
