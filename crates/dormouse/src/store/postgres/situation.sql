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
    turn.at as turn_at, turn.is_later as turn_is_later,
    coalesce((select w.weight from dormouse.shares w where w.share = coalesce(i.share, i.namespace)), 1) as weight
from dormouse.instances i
-- When the rate of its lane lets it start, if that is not yet.
left join lateral (
    select dormouse.after_ns(dormouse.now(), t.wait_ns) as at, t.rows = 1000 as is_later from (
        select l.spent_ns + l.ready_ns + b.before * l.interval_ns
            + least(i.cost, l.burst) * l.interval_ns - l.burst * l.interval_ns as wait_ns, b.rows
        from (
            select r.interval_ns, r.burst, dormouse.spent_ns(
                    i.namespace, i.lane, r.interval_ns, r.burst, r.changed_at, dormouse.now())
                as spent_ns, dormouse.ready_ns(i.namespace, i.lane, r.interval_ns, r.burst, 1000) as ready_ns
            from dormouse.lane_rate(i.namespace, i.lane) r
        ) l cross join lateral (
            select coalesce(sum(least(before.cost, l.burst)), 0)::bigint as before, count(*) as rows from (
                select p.cost from dormouse.instances p
                where p.lane is not null and p.namespace = i.namespace and p.lane = i.lane
                    and p.status = 'runnable' and p.blocked and not p.paused
                    and (p.priority, p.runnable_at, p.id) < (i.priority, i.runnable_at, i.id)
                limit 1000
            ) before
        ) b
        where i.blocked and not i.paused
    ) t where t.wait_ns > 0
) turn on true
where i.id = $1
