-- Those that could run though their lane has become too narrow for them: they stand in line again, the first of them
-- first. Those that are claimed run on. By instances_lane.
update instances set blocked = 1 where id in (
    select id from instances
    where lane is not null and status in ('executing', 'runnable') and namespace = ?1 and lane = ?2
        and status = 'runnable' and blocked = 0
    order by priority, runnable_at, id
    limit -1 offset max(?3 - (
        select count(*) from instances
        where lane is not null and status in ('executing', 'runnable') and namespace = ?1 and lane = ?2
            and status = 'executing'
    ), 0)
)
