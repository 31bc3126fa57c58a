-- What can keep an instance from moving: its queue's brake, its lane's holder, and how many rows go before it,
-- by instances_claim, counted up to a bound.
select dormouse.now() as now,
    exists (select from dormouse.paused_queues q where q.namespace = i.namespace and q.queue = i.queue)
        as queue_paused,
    (
        select h.id from dormouse.instances h
        where h.lane is not null and h.namespace = i.namespace and h.lane = i.lane
            and h.status in ('executing', 'runnable') and not h.blocked and h.id <> i.id
        limit 1
    ) as lane_holder,
    (
        select count(*) from (
            select from dormouse.instances b
            where b.status = 'runnable' and not b.blocked and not b.paused
                and b.queue = i.queue and b.machine = i.machine and b.version = i.version
                and b.namespace = i.namespace
                and (b.priority, b.runnable_at, b.id) < (i.priority, i.runnable_at, i.id)
            limit 1000
        ) before
    ) as ahead
from dormouse.instances i where i.id = $1
