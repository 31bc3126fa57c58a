-- Lanes: how they are locked, and how they are handed on.

-- A lane as a number, by which it is locked. Two lanes with one number share a lock: rare, and no more than a wait.
create or replace function dormouse.lane_number(p_namespace text, p_lane text) returns integer
language sql immutable parallel safe as $$
    select (hashtextextended(p_namespace || e'\n' || p_lane, 0) & 2147483647)::integer
$$;

-- How a transaction locks these lanes, and those that it has. The server's table of locks is bounded, so it locks at
-- most 32 of them singly: a shared lock on the lane's slot, one of 512, and a lock on the lane itself. The others it
-- locks by their slots as a whole, which keeps strangers out. The settings last as long as the locks do, and decide
-- only which way is taken: what is named here is locked again, at once if the transaction has it.
create or replace function dormouse.ways_to_lock(p_lanes integer[], out singly integer[], out slots integer[])
language plpgsql as $$
declare
    v_singly constant integer[] := coalesce(nullif(current_setting('dormouse.lanes', true), ''), '{}')::integer[];
    v_slots constant integer[] := coalesce(nullif(current_setting('dormouse.slots', true), ''), '{}')::integer[];
    v_fresh integer[];
begin
    -- What decides by looking at a lane after its lock was granted must see what was done before that.
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'a transaction at isolation level % cannot touch instances in lanes',
            upper(current_setting('transaction_isolation'))
            using errcode = 'invalid_transaction_state',
                hint = 'Begin it with ISOLATION LEVEL READ COMMITTED, or leave out the lane.';
    end if;
    slots := array(
        select distinct lane & 511 from unnest(p_lanes) lane where lane & 511 = any (v_slots) order by 1
    );
    singly := array(
        select distinct lane from unnest(p_lanes) lane where lane = any (v_singly) and lane & 511 <> all (v_slots)
        order by 1
    );
    v_fresh := array(
        select distinct lane from unnest(p_lanes) lane where lane <> all (v_singly) and lane & 511 <> all (v_slots)
    );
    if v_fresh = '{}' then
        return;
    elsif cardinality(v_singly) + cardinality(v_fresh) <= 32 then
        singly := array(select lane from unnest(singly || v_fresh) lane order by 1);
        perform set_config('dormouse.lanes', (v_singly || v_fresh)::text, true);
    else
        slots := array(
            select slot from unnest(slots) slot union select lane & 511 from unnest(v_fresh) lane order by 1
        );
        perform set_config('dormouse.slots', (v_slots || slots)::text, true);
    end if;
end
$$;

-- Locks lanes, waiting for each: slots in their order, then lanes in theirs.
create or replace function dormouse.lock_lanes(p_lanes integer[]) returns void
language plpgsql as $$
declare
    v_ways constant record := dormouse.ways_to_lock(p_lanes);
begin
    perform case
        when slot = any (v_ways.slots) then pg_advisory_xact_lock(1685025389, slot)
        else pg_advisory_xact_lock_shared(1685025389, slot)
    end from (
        select slot from unnest(v_ways.slots) slot union select lane & 511 from unnest(v_ways.singly) lane order by 1
    ) sorted;
    perform pg_advisory_xact_lock(1685025392, lane) from (
        select lane from unnest(v_ways.singly) lane order by 1
    ) sorted;
end
$$;

-- Locks those of these lanes that can be had at once, and says which.
create or replace function dormouse.try_lanes(p_lanes integer[]) returns integer[]
language plpgsql as $$
declare
    v_ways constant record := dormouse.ways_to_lock(p_lanes);
    v_slots constant integer[] := array(
        select slot from unnest(v_ways.slots) slot where pg_try_advisory_xact_lock(1685025389, slot)
    );
    -- Where somebody else has a part of a slot, the lane itself may still be free: a few are looked at.
    v_singly constant integer[] := array(
        select distinct lane from unnest(p_lanes) lane
        where lane = any (v_ways.singly) or (lane & 511 = any (v_ways.slots) and lane & 511 <> all (v_slots))
        limit 32
    );
    v_had constant integer[] := array(
        select lane from unnest(v_singly) lane where case
            when pg_try_advisory_xact_lock_shared(1685025389, lane & 511)
            then pg_try_advisory_xact_lock(1685025392, lane)
        end
    );
begin
    return array(
        select distinct lane from unnest(p_lanes) lane where lane & 511 = any (v_slots) or lane = any (v_had)
    );
end
$$;

-- How these lanes stand: what limits say of each, which is a width of 1 without one, and how many of it run and could run.
-- Both are counted only as far as the width needs, by instances_lane. Of a lane with a rate, also how much of its bucket is
-- spent, and how many starts those that could run will take from it.
create or replace function dormouse.lane_places(p_namespaces text[], p_lanes text[])
returns table (
    namespace text, lane text, width integer, running integer, ready integer, interval_ns bigint, burst integer,
    spent_ns bigint, ready_ns bigint
)
language sql stable rows 8 as $$
    select l.namespace, l.lane, l.width, (
        select count(*)::integer from (
            select from dormouse.instances h
            where h.lane is not null and h.namespace = l.namespace and h.lane = l.lane
                and h.status = 'executing' limit l.width
        ) counted
    ), (
        select count(*)::integer from (
            select from dormouse.instances h
            where h.lane is not null and h.namespace = l.namespace and h.lane = l.lane
                and h.status = 'runnable' and not h.blocked limit l.width + 1
        ) counted
    ), l.interval_ns, l.burst, case when l.interval_ns is not null then
        dormouse.spent_ns(l.namespace, l.lane, l.interval_ns, l.burst, l.changed_at, dormouse.now())
    end, case when l.interval_ns is not null then
        dormouse.ready_ns(l.namespace, l.lane, l.interval_ns, l.burst, l.width)
    end
    from (
        select touched.namespace, touched.lane, coalesce(m.width, 1) as width, m.interval_ns, m.burst, m.changed_at
        from (
            select distinct t.namespace, t.lane from unnest(p_namespaces, p_lanes) t (namespace, lane)
        ) touched
        left join lateral (
            select o.width, o.interval_ns, o.burst, o.changed_at from dormouse.limits o
            where o.namespace = touched.namespace and o.width is not null
                and o.name = any (array[touched.lane, split_part(touched.lane, '/', 1)])
            order by length(o.name) desc limit 1
        ) m on true
    ) l
$$;

-- Lets the next in line of each of these lanes run, by instances_lane: strict order, as many as the lane has room for, and
-- its bucket has starts for. If the bucket alone keeps the next one back, the lane is settled again at its moment. Whoever
-- calls holds the lanes' locks, so what it sees of them is final. Tells in which queues a row can now run, and that moment.
create or replace function dormouse.settle_lanes(p_namespaces text[], p_lanes text[]) returns dormouse.effects
language plpgsql as $$
declare
    v_effects dormouse.effects;
    v_narrow_namespaces text[];
    v_narrow_lanes text[];
    v_late_namespaces text[];
    v_late_lanes text[];
    v_late_ns bigint[];
begin
    with lanes as materialized (
        select p.*, greatest(p.width - p.running - p.ready, 0) as room,
            greatest(p.burst * p.interval_ns - p.spent_ns - p.ready_ns, 0) as free_ns
        from dormouse.lane_places(p_namespaces, p_lanes) p
    ), line as (
        select lanes.*, n.id, least(n.cost, lanes.burst) as cost, case when lanes.interval_ns is not null then
            sum(least(n.cost, lanes.burst) * lanes.interval_ns) over (
                partition by lanes.namespace, lanes.lane order by n.priority, n.runnable_at, n.id
            )
        end as taken_ns
        from lanes cross join lateral (
            select i.id, i.cost, i.priority, i.runnable_at from dormouse.instances i
            where i.lane is not null and i.namespace = lanes.namespace and i.lane = lanes.lane
                and i.status = 'runnable' and i.blocked and not i.paused
            order by i.priority, i.runnable_at, i.id
            limit least(lanes.room, lanes.free_ns / lanes.interval_ns + 1)
        ) n
    ), opened as (
        update dormouse.instances i set blocked = false from line
        where i.id = any (array[line.id]) and (line.taken_ns is null or line.taken_ns <= line.free_ns)
        returning i.queue
    ), late as (
        select l.namespace, l.lane, case
            when l.ready_ns + l.taken_ns <= l.burst * l.interval_ns
                then l.spent_ns + l.ready_ns + l.taken_ns - l.burst * l.interval_ns
            -- Whoever takes one of those that could be claimed has the lane settled again.
            when l.cost = 1 and l.burst < l.width then null
            else greatest(l.ready_ns + l.taken_ns - l.burst * l.interval_ns, 1000000000)
        end::bigint as wait_ns
        from (
            select distinct on (line.namespace, line.lane) line.* from line where line.taken_ns > line.free_ns
            order by line.namespace, line.lane, line.taken_ns
        ) l
    )
    select (select array_agg(distinct queue) from opened),
        array_agg(namespace) filter (where ready > 0 and running + ready > width),
        array_agg(lane) filter (where ready > 0 and running + ready > width),
        (select array_agg(late.namespace) from late where wait_ns is not null),
        (select array_agg(late.lane) from late where wait_ns is not null),
        (select array_agg(late.wait_ns) from late where wait_ns is not null)
    into v_effects.queues, v_narrow_namespaces, v_narrow_lanes, v_late_namespaces, v_late_lanes, v_late_ns from lanes;
    if v_narrow_lanes is not null then
        perform dormouse.narrow_lanes(v_narrow_namespaces, v_narrow_lanes);
    end if;
    if v_late_lanes is not null then
        v_effects.wake_at := dormouse.wake_lanes(v_late_namespaces, v_late_lanes, v_late_ns, dormouse.now());
    end if;
    return v_effects;
end
$$;

-- Has those stand in line again that could run though their lanes have become too narrow for them; the first in line go
-- on. A row that is claimed at this moment is left alone: it runs.
create or replace function dormouse.narrow_lanes(p_namespaces text[], p_lanes text[]) returns void
language plpgsql as $$
declare
    v_ids constant bigint[] := array(
        select surplus.id from dormouse.lane_places(p_namespaces, p_lanes) l cross join lateral (
            select i.id from dormouse.instances i
            where i.lane is not null and i.namespace = l.namespace and i.lane = l.lane
                and i.status = 'runnable' and not i.blocked
            order by i.priority, i.runnable_at, i.id
            offset greatest(l.width - l.running, 0)
        ) surplus
    );
begin
    update dormouse.instances set blocked = true where id = any (array(
        select id from dormouse.instances
        where id = any (v_ids) and status = 'runnable' and not blocked
        order by id for no key update skip locked
    ));
end
$$;

-- Moves rows whose outcomes lead to another lane, or out of their lane: they let go of their places, and wait for new ones.
-- Whoever calls holds the locks of both lanes, and has applied the outcomes.
create or replace function dormouse.change_lanes(p_batch dormouse.decided[], p_owned boolean[]) returns dormouse.effects
language plpgsql as $$
declare
    v_namespaces text[];
    v_lanes text[];
begin
    with moving as materialized (
        select i.id, i.lane as left_lane, o.lane from unnest(p_batch) o
        join dormouse.instances i on i.id = any (array[o.id])
        where o.moves and p_owned[o.ord] and i.ended_at is null
    ), moved as (
        update dormouse.instances i set lane = m.lane, blocked = m.lane is not null and i.status = 'runnable'
        from moving m where i.id = any (array[m.id])
        returning i.namespace, m.left_lane, m.lane
    )
    select array_agg(moved.namespace), array_agg(touched.lane) into v_namespaces, v_lanes
    from moved cross join lateral (values (moved.left_lane), (moved.lane)) touched (lane)
    where touched.lane is not null;
    return case when v_lanes is not null then dormouse.settle_lanes(v_namespaces, v_lanes) end;
end
$$;
