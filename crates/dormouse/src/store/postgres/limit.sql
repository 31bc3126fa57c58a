-- Limits: how one is changed, and how its lanes are settled then.
--
-- A change waits for nobody. It writes the limit, settles the first of its lanes in the same transaction, and leaves the
-- others to passes over all of them, a few at a time. Another transaction may hold a lane, or may have settled one by the
-- limit as it was before, and not be visible yet. So a pass is the last one only if everything that wrote when the change
-- had been committed has ended before the pass began, and no lane was busy in it. Until then the passes are repeated, with
-- the heartbeats of workers.

-- Settles some lanes of a limit, those after one, as far as nobody else holds them.
create or replace function dormouse.settle_some(
    p_namespace text, p_name text, p_after text, p_lanes_max integer,
    out settled_to text, out is_busy boolean, out effects dormouse.effects
) language plpgsql as $$
declare
    v_lanes text[];
    v_lane text;
    v_last text := p_after;
    v_had integer[];
    v_names text[];
    v_namespaces text[];
begin
    if p_after = '' then
        -- The lane of that very name, and the one of the family without a key, before which no other sorts.
        v_lanes := array[p_name, p_name || '/'];
        v_last := p_name || '/';
    end if;
    loop
        exit when strpos(p_name, '/') > 0;
        if cardinality(v_lanes) >= p_lanes_max then
            settled_to := v_last;
            exit;
        end if;
        select i.lane into v_lane from dormouse.instances i
        where i.lane is not null and i.status in ('executing', 'runnable') and i.namespace = p_namespace
            and i.lane > v_last and i.lane < p_name || '0'
        order by i.lane limit 1;
        exit when not found;
        v_lanes := v_lanes || v_lane;
        v_last := v_lane;
    end loop;
    is_busy := false;
    if v_lanes is null then
        return;
    end if;
    v_had := dormouse.try_lanes(array(select dormouse.lane_number(p_namespace, lane) from unnest(v_lanes) lane));
    v_names := array(
        select lane from unnest(v_lanes) lane where dormouse.lane_number(p_namespace, lane) = any (v_had)
    );
    v_namespaces := array_fill(p_namespace, array[cardinality(v_names)]);
    perform dormouse.mend_buckets(v_namespaces, v_names, dormouse.now());
    effects := dormouse.settle_lanes(v_namespaces, v_names);
    -- One that could run, and was being claimed when its lane had to be narrowed, leaves the lane too wide.
    is_busy := cardinality(v_names) < cardinality(v_lanes) or coalesce((
        select bool_or(ready > 0 and running + ready > width) from dormouse.lane_places(v_namespaces, v_names)
    ), false);
end
$$;

-- Sets the limit of a name, or removes it: then the width is null. Says whether there was one.
create or replace function dormouse.set_limit(
    p_namespace text, p_name text, p_width integer, p_rate integer, p_period_us bigint, p_burst integer, p_interval_ns bigint,
    out had boolean, out effects dormouse.effects
) language plpgsql as $$
declare
    v_some record;
begin
    -- Only another change of the same limit, or some of its lanes being settled, can be in the way.
    select width is not null into had from dormouse.limits
    where namespace = p_namespace and name = p_name for no key update;
    had := coalesce(had, false);
    if p_width is null and not had then
        return;
    end if;
    insert into dormouse.limits (namespace, name, width, changed_at, settles_after, rate, period_us, burst, interval_ns)
    values (p_namespace, p_name, p_width, dormouse.now(), '', p_rate, p_period_us, p_burst, p_interval_ns)
    on conflict (namespace, name) do update set
        rate = excluded.rate, period_us = excluded.period_us, burst = excluded.burst, interval_ns = excluded.interval_ns,
        width = excluded.width, changed_at = excluded.changed_at, settles_after = '', tried_at = null,
        changed_xid = null, is_last_pass = false, is_busy = false;
    v_some := dormouse.settle_some(p_namespace, p_name, '', 32);
    effects := v_some.effects;
end
$$;

-- Settles some lanes of a limit that has changed, and says whether there is more to do at once.
create or replace function dormouse.settle_limits(out more boolean, out effects dormouse.effects)
language plpgsql as $$
declare
    -- Taken first: this transaction has no number of its own yet that could count as one under way.
    v_seen constant pg_snapshot := pg_current_snapshot();
    v_limit dormouse.limits;
    v_some record;
begin
    more := false;
    -- Buckets that have long been full.
    delete from dormouse.rates r where r.ctid = any (array(
        select f.ctid from dormouse.rates f where f.until_ns < dormouse.ns(dormouse.now()) - 60000000000
        order by f.until_ns limit 10000 for update skip locked
    ));
    select * into v_limit from dormouse.limits
    where settles_after is not null
    order by tried_at nulls first limit 1 for no key update skip locked;
    if not found then
        return;
    end if;
    if v_limit.settles_after = '' then
        v_limit.is_last_pass := coalesce(pg_snapshot_xmin(v_seen) >= v_limit.changed_xid,
            pg_snapshot_xmin(v_seen) = pg_snapshot_xmax(v_seen));
        v_limit.changed_xid := coalesce(v_limit.changed_xid, pg_snapshot_xmax(v_seen));
        v_limit.is_busy := false;
    end if;
    v_some := dormouse.settle_some(v_limit.namespace, v_limit.name, v_limit.settles_after, 32);
    effects := v_some.effects;
    v_limit.is_busy := v_limit.is_busy or v_some.is_busy;
    if v_some.settled_to is null and v_limit.is_last_pass and not v_limit.is_busy then
        delete from dormouse.limits
        where namespace = v_limit.namespace and name = v_limit.name and v_limit.width is null;
        update dormouse.limits set settles_after = null, is_last_pass = false
        where namespace = v_limit.namespace and name = v_limit.name;
    else
        more := v_some.settled_to is not null;
        update dormouse.limits set
            settles_after = coalesce(v_some.settled_to, ''), tried_at = clock_timestamp(),
            changed_xid = v_limit.changed_xid, is_last_pass = v_limit.is_last_pass, is_busy = v_limit.is_busy
        where namespace = v_limit.namespace and name = v_limit.name;
    end if;
    -- One that was not tried yet can be settled now; one that was tried waits for others, and comes again.
    more := more or exists (
        select from dormouse.limits
        where settles_after is not null and (tried_at is null or settles_after <> '')
    );
end
$$;

-- How much of a limit is in use: places held and instances that wait for one, in its first lanes, by instances_lane.
create or replace function dormouse.limit_use(
    p_namespace text, p_name text, p_lanes_max integer, p_waiting_max integer,
    out lanes integer, out more_lanes boolean, out held bigint, out waiting bigint
) language plpgsql stable as $$
declare
    v_lanes text[] := array[p_name, p_name || '/'];
    v_last text := p_name || '/';
    v_lane text;
    v_held bigint;
    v_waiting bigint;
begin
    lanes := 0;
    held := 0;
    waiting := 0;
    more_lanes := false;
    loop
        exit when strpos(p_name, '/') > 0;
        select i.lane into v_lane from dormouse.instances i
        where i.lane is not null and i.status in ('executing', 'runnable') and i.namespace = p_namespace
            and i.lane > v_last and i.lane < p_name || '0'
        order by i.lane limit 1;
        exit when not found;
        more_lanes := cardinality(v_lanes) >= p_lanes_max;
        exit when more_lanes;
        v_lanes := v_lanes || v_lane;
        v_last := v_lane;
    end loop;
    if strpos(p_name, '/') > 0 then
        v_lanes := array[p_name];
    end if;
    foreach v_lane in array v_lanes loop
        -- A lane with a limit of its own is not this one's.
        continue when v_lane <> p_name and exists (
            select from dormouse.limits m where m.namespace = p_namespace and m.name = v_lane and m.width is not null
        );
        select (
            select count(*) from (
                select from dormouse.instances i
                where i.lane is not null and i.status in ('executing', 'runnable') and i.namespace = p_namespace
                    and i.lane = v_lane and not i.blocked limit 10000
            ) counted
        ), (
            select count(*) from (
                select from dormouse.instances i
                where i.lane is not null and i.namespace = p_namespace and i.lane = v_lane
                    and i.status = 'runnable' and i.blocked limit p_waiting_max
            ) counted
        ) into v_held, v_waiting;
        lanes := lanes + (v_held + v_waiting > 0)::integer;
        held := held + v_held;
        waiting := waiting + v_waiting;
    end loop;
end
$$;
