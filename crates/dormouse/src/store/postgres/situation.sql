-- What can keep an instance from moving: its queue's brake, its lane's holders, and how many rows go before it:
-- of its share, and of its namespace those of a more urgent priority, by instances_claim, counted up to a bound.
select dormouse.now() as now,
    exists (select from dormouse.paused_queues q where q.namespace = i.namespace and q.queue = i.queue)
        as queue_paused,
    array(
        select h.id from dormouse.instances h
        where h.lane is not null and h.namespace = i.namespace and h.lane = i.lane
            and h.status in ('executing', 'runnable') and not h.blocked and h.id <> i.id
        limit 10000
    ) as holders,
    coalesce(
        (select m.width from dormouse.limits m where m.namespace = i.namespace and m.name = i.lane),
        (select m.width from dormouse.limits m where m.namespace = i.namespace and m.name = split_part(i.lane, '/', 1))
    ) as width,
    (
        select count(*) from (
            select from dormouse.instances b
            where b.status = 'runnable' and not b.blocked and not b.paused
                and b.queue = i.queue and b.machine = i.machine and b.version = i.version
                and b.namespace = i.namespace and b.priority = i.priority
                and coalesce(b.share, b.namespace) = coalesce(i.share, i.namespace)
                and (b.runnable_at, b.id) < (i.runnable_at, i.id)
            limit 1000
        ) before
    ) as ahead,
    (
        select count(*) from (
            select from dormouse.instances b
            where b.status = 'runnable' and not b.blocked and not b.paused
                and b.queue = i.queue and b.machine = i.machine and b.version = i.version
                and b.namespace = i.namespace and b.priority < i.priority
            limit 1000
        ) before
    ) as urgent,
    coalesce((select w.weight from dormouse.shares w where w.share = coalesce(i.share, i.namespace)), 1) as weight
from dormouse.instances i where i.id = $1
