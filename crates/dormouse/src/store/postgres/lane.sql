-- Hands on each of these lanes that nobody holds to the next in line, by instances_lane: strict order. Whoever
-- calls holds the lanes' locks, so what it sees of them is final. Tells in which queues a row can now run.
create or replace function dormouse.settle_lanes(p_namespaces text[], p_lanes text[]) returns text[]
language plpgsql as $$
declare
    v_queues text[];
begin
    with lanes as (
        select distinct namespace, lane from unnest(p_namespaces, p_lanes) touched (namespace, lane)
    ), free as (
        select next.id from lanes cross join lateral (
            select i.id from dormouse.instances i
            where i.lane is not null and i.namespace = lanes.namespace and i.lane = lanes.lane
                and i.status = 'runnable' and i.blocked and not i.paused
            order by i.priority, i.runnable_at, i.id limit 1
        ) next
        where not exists (
            select from dormouse.instances h
            where h.lane is not null and h.namespace = lanes.namespace and h.lane = lanes.lane
                and h.status = 'executing'
        ) and not exists (
            select from dormouse.instances h
            where h.lane is not null and h.namespace = lanes.namespace and h.lane = lanes.lane
                and h.status = 'runnable' and not h.blocked
        )
    ), opened as (
        update dormouse.instances i set blocked = false from free where i.id = free.id returning i.queue
    )
    select array_agg(distinct queue) into v_queues from opened;
    return v_queues;
end
$$;
