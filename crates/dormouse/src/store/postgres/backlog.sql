-- What is runnable in each queue by the kept counts, the first of it by hops in instances_claim, one for each line of
-- claimable rows (one queue, machine, version, namespace, priority and share); and queues whose brake is on.
with recursive lines (hop, queue, machine, version, namespace, priority, share, runnable_at) as (
    (
        select 1, queue, machine, version, namespace, priority, coalesce(share, namespace), runnable_at from dormouse.instances
        where status = 'runnable' and not blocked and not paused
        order by queue, machine, version, namespace, priority, coalesce(share, namespace), runnable_at, id limit 1
    )
    union all
    select l.hop + 1, next.* from lines l cross join lateral (
        select i.queue, i.machine, i.version, i.namespace, i.priority, coalesce(i.share, i.namespace), i.runnable_at
        from dormouse.instances i
        where i.status = 'runnable' and not i.blocked and not i.paused
            and (i.queue, i.machine, i.version, i.namespace, i.priority, coalesce(i.share, i.namespace))
                > (l.queue, l.machine, l.version, l.namespace, l.priority, l.share)
        order by i.queue, i.machine, i.version, i.namespace, i.priority, coalesce(i.share, i.namespace),
            i.runnable_at, i.id limit 1
    ) next where l.hop < 1000
), oldest as (
    select namespace, queue, min(runnable_at) as at from lines group by namespace, queue
), depths as (
    select namespace, queue, sum(count)::bigint as runnable from dormouse.counts
    where status = 'runnable' and ($1::text is null or namespace = $1)
    group by namespace, queue having sum(count) <> 0
)
select namespace, queue, coalesce(runnable, 0) as runnable, case when runnable > 0 then oldest.at end as oldest_at,
    paused.at is not null as paused
from depths
full join (select * from dormouse.paused_queues where $1::text is null or namespace = $1) paused
    using (namespace, queue)
left join oldest using (namespace, queue)
order by runnable is null, namespace, queue limit $2
