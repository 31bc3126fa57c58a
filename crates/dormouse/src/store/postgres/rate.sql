-- Rates: how much of a lane's bucket is spent, who may take from it, and when the next may.
--
-- The bucket of a lane is one moment, at which all that was taken from it will have been filled in again. Only claims write
-- it, whoever settles a lane reads it. So neither waits for the other, and no more start than the bucket holds, whatever
-- those who settle lanes have seen. `rules/rate.rs` has the same rules.

create or replace function dormouse.ns(p_at timestamptz) returns bigint
language sql immutable parallel safe as $$
    select (extract(epoch from p_at) * 1000000)::bigint * 1000
$$;

-- A moment so long after another one, rounded up.
create or replace function dormouse.after_ns(p_at timestamptz, p_wait_ns bigint) returns timestamptz
language sql immutable parallel safe as $$
    select p_at + ((p_wait_ns + 999) / 1000) * interval '1 microsecond'
$$;

-- What is spent of a bucket. If the rate was changed after it was taken from, it was filled at the old rate until then, what
-- was spent stays spent by the count, and it is filled at the new rate since. After the clock was turned back, or the burst
-- made smaller, no more is spent than the bucket holds.
create or replace function dormouse.spent_of(
    r dormouse.rates, p_interval_ns bigint, p_burst integer, p_since timestamptz, p_now_ns bigint
) returns bigint language sql immutable parallel safe as $$
    select greatest(least(case
        when r.until_ns is null then 0
        when r.interval_ns = p_interval_ns then r.until_ns - p_now_ns
        else (
            select ceil(greatest(r.until_ns - c.changed_ns, 0)::numeric * p_interval_ns / r.interval_ns)
                - (p_now_ns - c.changed_ns)
            from (select least(greatest(dormouse.ns(p_since), r.at_ns), p_now_ns) as changed_ns) c
        )
    end, p_burst * p_interval_ns), 0)::bigint
$$;

create or replace function dormouse.spent_ns(
    p_namespace text, p_lane text, p_interval_ns bigint, p_burst integer, p_since timestamptz, p_now timestamptz
) returns bigint language sql stable as $$
    select coalesce((
        select dormouse.spent_of(r, p_interval_ns, p_burst, p_since, dormouse.ns(p_now))
        from dormouse.rates r where r.namespace = p_namespace and r.lane = p_lane
    ), 0)
$$;

-- Writes the buckets of lanes anew whose limits were changed, or whose clock was turned back: what is more than a bucket holds
-- would not become less with time. Whoever calls waits for no lock after this.
create or replace function dormouse.mend_buckets(p_namespaces text[], p_lanes text[], p_now timestamptz) returns void
language plpgsql as $$
begin
    update dormouse.rates r set
        until_ns = dormouse.ns(p_now) + b.spent_ns, interval_ns = b.interval_ns, at_ns = dormouse.ns(p_now)
    from (
        select s.namespace, s.lane, m.interval_ns,
            dormouse.spent_of(s, m.interval_ns, m.burst, m.changed_at, dormouse.ns(p_now)) as spent_ns
        from (
            select distinct t.namespace collate "C" as namespace, t.lane collate "C" as lane
            from unnest(p_namespaces, p_lanes) t (namespace, lane) order by 1, 2
        ) l
        cross join lateral (select * from dormouse.lane_rate(l.namespace, l.lane) offset 0) m
        cross join lateral (
            select s.* from dormouse.rates s where s.namespace = l.namespace and s.lane = l.lane
                and (s.interval_ns <> m.interval_ns or s.until_ns > dormouse.ns(p_now) + m.burst * m.interval_ns)
            for no key update
        ) s
    ) b
    where r.namespace = any (array[b.namespace]) and r.lane = any (array[b.lane]);
end
$$;

-- What those of a lane will take that could be claimed, so many of them at most, by instances_lane.
create or replace function dormouse.ready_ns(
    p_namespace text, p_lane text, p_interval_ns bigint, p_burst integer, p_rows_max integer
) returns bigint language sql stable as $$
    select coalesce(sum(least(ready.cost, p_burst) * p_interval_ns), 0)::bigint from (
        select h.cost from dormouse.instances h
        where h.lane is not null and h.namespace = p_namespace and h.lane = p_lane
            and h.status = 'runnable' and not h.blocked limit p_rows_max
    ) ready
$$;

-- Has lanes settled after so long, unless they are settled before, and says when the first of them is.
create or replace function dormouse.wake_lanes(
    p_namespaces text[], p_lanes text[], p_waits_ns bigint[], p_now timestamptz
) returns timestamptz language plpgsql as $$
declare
    v_at timestamptz;
begin
    with set as (
        insert into dormouse.rate_wakes (namespace, lane, at, set_at)
        select l.namespace, l.lane, l.at, p_now
        from (
            select t.namespace, t.lane, dormouse.after_ns(p_now, t.wait_ns) as at
            from unnest(p_namespaces, p_lanes, p_waits_ns) t (namespace, lane, wait_ns)
        ) l
        where (
            select true from dormouse.rate_wakes w
            where w.namespace = l.namespace and w.lane = l.lane and w.at <= l.at limit 1
        ) is null
        returning at
    )
    select min(set.at) into v_at from set;
    return v_at;
end
$$;

-- Takes from the buckets what these rows start, in their order. Says for each: null if it is in no lane with a rate; `now` if
-- it starts at once, as the first rows do for which there are places; `ahead` if it may start a little later, which counts as
-- if it did; `held` if it would have to start at once; and `waits` if the bucket has nothing for it: that one stands in line
-- again. Whoever calls has locked the rows.
create or replace function dormouse.take_starts(
    p_ids bigint[], p_places integer, p_now timestamptz, out starts text[], out wake_at timestamptz
) language plpgsql as $$
declare
    v_now_ns constant bigint := dormouse.ns(p_now);
    v_namespaces text[];
    v_lanes text[];
    v_spent record;
begin
    starts := array_fill(null::text, array[cardinality(p_ids)]);
    select array_agg(l.namespace), array_agg(l.lane) into v_namespaces, v_lanes from (
        select distinct i.namespace, i.lane from unnest(p_ids) locked (id)
        join dormouse.instances i on i.id = any (array[locked.id])
        cross join lateral (select * from dormouse.lane_rate(i.namespace, i.lane) offset 0) r
        where i.lane is not null
    ) l;
    if v_lanes is null then
        return;
    end if;
    -- Only claims write these, always in this order, and none of them waits for anything else then.
    insert into dormouse.rates (namespace, lane, until_ns, interval_ns, at_ns)
    select l.namespace, l.lane, 0, 1, 0 from unnest(v_namespaces, v_lanes) l (namespace, lane)
    order by l.namespace collate "C", l.lane collate "C"
    on conflict do nothing;
    perform from (
        select l.namespace, l.lane from unnest(v_namespaces, v_lanes) l (namespace, lane)
        order by l.namespace collate "C", l.lane collate "C"
    ) l cross join lateral (
        select from dormouse.rates r where r.namespace = l.namespace and r.lane = l.lane for no key update
    ) locked;
    with rows as materialized (
        select locked.place, i.namespace, i.lane, r.width, r.interval_ns, r.burst, r.burst * r.interval_ns as size_ns,
            least(i.cost, r.burst) * r.interval_ns as cost_ns, locked.place <= p_places as is_at_once,
            dormouse.spent_of(s.bucket, r.interval_ns, r.burst, r.changed_at, v_now_ns) as spent_ns
        from unnest(p_ids) with ordinality locked (id, place)
        join dormouse.instances i on i.id = any (array[locked.id])
        cross join lateral (select * from dormouse.lane_rate(i.namespace, i.lane) offset 0) r
        cross join lateral (
            select s as bucket from dormouse.rates s where s.namespace = i.namespace and s.lane = i.lane offset 0
        ) s
        where i.lane is not null
    ), counted as (
        select rows.*, sum(rows.cost_ns) over of_lane as all_ns,
            coalesce(sum(rows.cost_ns) filter (where rows.is_at_once) over of_lane, 0) as now_ns
        from rows window of_lane as (partition by rows.namespace, rows.lane order by rows.place)
    ), decided as materialized (
        select c.*, case
            when c.spent_ns + c.all_ns > c.size_ns then 'waits'
            when c.is_at_once then 'now'
            when c.size_ns >= 1000000000 and greatest(c.spent_ns + c.now_ns, 50000000) + c.all_ns - c.now_ns <= c.size_ns
                then 'ahead'
            else 'held'
        end as starts
        from counted c
    ), taken as (
        select d.namespace, d.lane, d.interval_ns, d.burst, d.width,
            max(case d.starts
                when 'now' then d.spent_ns + d.all_ns
                when 'ahead' then greatest(d.spent_ns + d.now_ns, 50000000) + d.all_ns - d.now_ns
            end)::bigint as after_ns,
            min(d.spent_ns + d.all_ns - d.size_ns) filter (where d.starts = 'waits')::bigint as wait_ns
        from decided d group by d.namespace, d.lane, d.interval_ns, d.burst, d.width
    ), written as (
        update dormouse.rates r set until_ns = v_now_ns + t.after_ns, interval_ns = t.interval_ns, at_ns = v_now_ns
        from taken t
        where t.after_ns is not null and r.namespace = any (array[t.namespace]) and r.lane = any (array[t.lane])
    )
    select (select array_agg(d.place order by d.place) from decided d) as places,
        (select array_agg(d.starts order by d.place) from decided d) as starts,
        array_agg(t.namespace) filter (where t.wait_ns is not null) as late_namespaces,
        array_agg(t.lane) filter (where t.wait_ns is not null) as late_lanes,
        array_agg(t.wait_ns) filter (where t.wait_ns is not null) as late_ns,
        array_agg(t.namespace) filter (where t.after_ns is not null and t.burst < t.width) as tight_namespaces,
        array_agg(t.lane) filter (where t.after_ns is not null and t.burst < t.width) as tight_lanes,
        array_agg(t.interval_ns) filter (where t.after_ns is not null and t.burst < t.width) as intervals_ns,
        array_agg(t.burst) filter (where t.after_ns is not null and t.burst < t.width) as bursts
    into v_spent from taken t;
    for i in 1..coalesce(cardinality(v_spent.places), 0) loop
        starts[v_spent.places[i]] := v_spent.starts[i];
    end loop;
    if v_spent.late_lanes is not null then
        update dormouse.instances i set blocked = true
        from unnest(p_ids, starts) t (id, starts) where i.id = any (array[t.id]) and t.starts = 'waits';
        wake_at := dormouse.wake_lanes(v_spent.late_namespaces, v_spent.late_lanes, v_spent.late_ns, p_now);
    end if;
    if v_spent.tight_lanes is not null then
        -- If those that could be claimed had been all that the bucket holds, nobody has had the lane settled for the next.
        select array_agg(l.namespace), array_agg(l.lane), array_agg(l.interval_ns) into v_namespaces, v_lanes, v_spent.intervals_ns
        from unnest(v_spent.tight_namespaces, v_spent.tight_lanes, v_spent.intervals_ns, v_spent.bursts)
            l (namespace, lane, interval_ns, burst)
        where coalesce((
            select true from dormouse.instances w
            where w.lane is not null and w.namespace = l.namespace and w.lane = l.lane
                and w.status = 'runnable' and w.blocked and not w.paused limit 1
        ), dormouse.ready_ns(l.namespace, l.lane, 1, l.burst, l.burst) >= l.burst);
        if v_lanes is not null then
            wake_at := least(wake_at, dormouse.wake_lanes(v_namespaces, v_lanes, v_spent.intervals_ns, p_now));
        end if;
    end if;
end
$$;

-- The rate that limits give a lane, if they do.
create or replace function dormouse.lane_rate(p_namespace text, p_lane text)
returns table (width integer, interval_ns bigint, burst integer, changed_at timestamptz) language sql stable rows 1 as $$
    select m.width, m.interval_ns, m.burst, m.changed_at from (
        select o.width, o.interval_ns, o.burst, o.changed_at from dormouse.limits o
        where o.namespace = p_namespace and o.width is not null
            and o.name = any (array[p_lane, split_part(p_lane, '/', 1)])
        order by length(o.name) desc limit 1
    ) m where m.interval_ns is not null
$$;

-- Has lanes settled whose moment has come, by rate_wakes_due; and by rate_wakes_set those that waited when the clock was
-- turned back. A lane that another transaction holds is left for a sweep that comes soon.
create or replace function dormouse.due_lanes(p_now timestamptz) returns dormouse.effects
language plpgsql as $$
declare
    v_ids bigint[];
    v_had integer[];
    v_namespaces text[];
    v_lanes text[];
begin
    v_ids := array(
        select w.id from dormouse.rate_wakes w where w.at <= p_now order by w.at, w.id limit 256 for update skip locked
    );
    v_ids := v_ids || array(
        select w.id from dormouse.rate_wakes w where w.set_at > p_now and w.id <> all (v_ids)
        order by w.set_at limit 256 - cardinality(v_ids) for update skip locked
    );
    if v_ids = '{}' then
        return null;
    end if;
    v_had := dormouse.try_lanes(array(
        select dormouse.lane_number(w.namespace, w.lane) from dormouse.rate_wakes w where w.id = any (v_ids)
    ));
    with fired as (
        delete from dormouse.rate_wakes w
        where w.id = any (v_ids) and dormouse.lane_number(w.namespace, w.lane) = any (v_had)
        returning w.namespace, w.lane
    )
    select array_agg(fired.namespace), array_agg(fired.lane) into v_namespaces, v_lanes from fired;
    if v_lanes is null then
        return null;
    end if;
    perform dormouse.mend_buckets(v_namespaces, v_lanes, p_now);
    return dormouse.settle_lanes(v_namespaces, v_lanes);
end
$$;
