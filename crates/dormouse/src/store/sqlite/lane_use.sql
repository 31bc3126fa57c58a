-- How many hold a lane and how many wait for it, each counted up to a bound, by instances_lane.
select (
    select count(*) from (
        select 1 from instances
        where lane is not null and status in ('executing', 'runnable') and namespace = ?1 and lane = ?2 and blocked = 0
        limit ?3
    )
), (
    select count(*) from (
        select 1 from instances
        where lane is not null and status in ('executing', 'runnable') and namespace = ?1 and lane = ?2
            and status = 'runnable' and blocked = 1
        limit ?4
    )
)
