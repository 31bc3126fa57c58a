-- A run as its event tells it; none if no start is given.
create or replace function dormouse.run_of(p_started_us bigint, p_took_us bigint, p_progress text) returns dormouse.run
language sql immutable as $$
    select case when p_started_us is not null then
        row('epoch'::timestamptz + p_started_us * interval '1 microsecond', p_took_us, p_progress::json)::dormouse.run
    end
$$;

-- Applies changes to rows that the caller has locked, and keeps what must hold between rows: a key has one
-- holder, a lane has one holder, a barrier counts each end once, every transition is an event, and counts are kept.
create or replace function dormouse.apply(p_changes dormouse.change[], p_now timestamptz)
returns dormouse.effects language plpgsql as $$
declare
    v_changes dormouse.change[] := p_changes;
    v_place constant bigint := dormouse.feed_place();
    v_effects dormouse.effects;
    v_woken boolean := false;
    v_queues text[];
    v_wake_at timestamptz;
    v_ended bigint[];
    v_parents bigint[];
    v_rounds integer[];
    v_done boolean[];
    v_namespaces text[];
    v_lanes text[];
    v_step_namespaces text[];
    v_step_lanes text[];
begin
    -- Ends take their parents along, who rarely end themselves: the second round is nearly always the last.
    while v_changes is not null loop
        -- A parent that is woken may fail by a rival for its key, and take its own parent along.
        if v_woken and exists (
            select from unnest(v_changes) c join dormouse.instances i on i.id = any (array[c.id])
            where i.key_scope is not null and i.parent is not null and not i.joined
        ) then
            perform dormouse.lock_more(array(select c.id from unnest(v_changes) c), '{}');
        end if;
        with wanted as (
            select c.*, o.parent, o.parent_round, o.joined, o.lane, o.namespace, o.machine, o.queue,
                o.keeps_history, o.key_scope, o.version as old_version, o.step as old_step, o.status as old_status,
                o.status = 'executing' or (o.status = 'runnable' and not o.blocked and not o.paused) as was_open,
                c.status in ('done', 'failed', 'cancelled') as ends,
                -- The default scope never takes a key back, except by a retry, which asks before it comes here. For
                -- others: whoever holds the key, or will when these changes are made.
                nullif(case
                    when o.key_scope is not null and o.key_scope <> 'always'
                        and strpos(o.key_scope, c.status) > 0
                    then coalesce(dormouse.key_holder(o.namespace, o.key), (
                        select min(f.id) from unnest(v_changes) f
                        join dormouse.instances i on i.id = any (array[f.id])
                        where i.namespace = o.namespace and i.key = o.key and strpos(i.key_scope, f.status) > 0
                    ))
                end, o.id) as holder
            from unnest(v_changes) c join dormouse.instances o on o.id = any (array[c.id])
        ), decided as (
            -- A status in which a key counts as taken cannot be entered while another holds it: this row alone
            -- fails, and lets go of its claim on the key if even `failed` could not be saved with it.
            select w.*, case when holder is not null and not ends then
                    format('it could not become %s: its key is taken by instance %s', w.status, holder)
                end as rivalry,
                (kind is not null)::int + (then_kind is not null)::int
                    + (holder is not null and not ends)::int as events
            from wanted w
        ), saved as (
            update dormouse.instances i set
                status = case when d.rivalry is null then d.status else 'failed' end,
                version = d.version, step = d.step, state = coalesce(d.state, i.state),
                seq = i.seq + d.events,
                attempt = d.attempt, runnable_at = d.runnable_at,
                worker = case when d.rivalry is null then d.worker end,
                wake_at = case when d.rivalry is null then d.wake_at end,
                wake = d.wake, awaits = d.awaits, inbox = d.inbox,
                inbox_bytes = case when d.inbox = 0 then 0 else i.inbox_bytes end,
                barrier = d.barrier, round = d.round,
                joined = i.joined or d.ends or d.rivalry is not null,
                -- Whoever did not hold its lane stands behind it until the lane is settled, below.
                blocked = d.lane is not null and d.status = 'runnable' and (d.paused or not d.was_open)
                    and d.rivalry is null,
                paused = d.paused,
                cancel_requested = i.cancel_requested and not (d.ends or d.rivalry is not null),
                key_scope = case
                    when d.holder is null or (not d.ends and strpos(d.key_scope, 'failed') = 0) then i.key_scope
                    else ''
                end,
                parked_until = case when d.ends and i.status = 'awaiting_signal' then i.wake_at end,
                changed_at = p_now,
                ended_at = case when d.ends or d.rivalry is not null then p_now end,
                last_error = coalesce(d.rivalry, d.last_error), output = d.output
            from decided d where i.id = any (array[d.id])
            returning i.id, i.seq, i.status, i.version, i.step, i.queue, i.wake_at, i.blocked, i.paused,
                d.ends or d.rivalry is not null as ended, d.rivalry, d.joined, d.parent, d.parent_round,
                d.namespace, d.machine, d.lane, d.was_open, d.keeps_history, d.kind, d.data, d.then_kind,
                d.then_data, d.state, d.run, d.events, d.old_version, d.old_step, d.old_status
        ), recorded as (
            insert into dormouse.history (
                instance, seq, kind, version, step, at, data, state, id, started_at, took_us, progress
            )
            select s.id, event.seq, event.kind, s.version, s.step, p_now, event.data, event.state,
                dormouse.event_id(v_place), (event.run).started_at, (event.run).took_us,
                (event.run).progress
            from saved s cross join lateral (values
                (s.seq - s.events + 1, s.kind, s.data, s.state, s.run),
                (s.seq - s.events + 2, s.then_kind, s.then_data, null, null),
                (s.seq, case when s.rivalry is not null then 'failed' end,
                    json_build_object('error', s.rivalry), null, null)
            ) event (seq, kind, data, state, run)
            where s.keeps_history and event.kind is not null
        ), counted as (
            insert into dormouse.counts (namespace, queue, machine, version, step, status, count)
            select namespace, queue, machine, version, step, status, sum(by) from (
                select namespace, queue, machine, old_version, old_step, old_status, -1 from saved
                union all
                select namespace, queue, machine, version, step, status, 1 from saved
            ) moved (namespace, queue, machine, version, step, status, by)
            where status <> 'executing'
            group by namespace, queue, machine, version, step, status having sum(by) <> 0
        )
        select array_agg(distinct queue) filter (where status = 'runnable' and not blocked and not paused),
            min(wake_at), array_agg(id) filter (where ended),
            array_agg(parent) filter (where ended and not joined and parent is not null),
            array_agg(parent_round) filter (where ended and not joined and parent is not null),
            array_agg(status = 'done') filter (where ended and not joined and parent is not null),
            array_agg(namespace) filter (where lane is not null and (blocked or was_open)),
            array_agg(lane) filter (where lane is not null and (blocked or was_open))
        into v_queues, v_wake_at, v_ended, v_parents, v_rounds, v_done, v_step_namespaces, v_step_lanes
        from saved;
        v_effects := dormouse.merge(v_effects, row(v_queues, v_wake_at, v_ended, null)::dormouse.effects);
        v_namespaces := v_namespaces || v_step_namespaces;
        v_lanes := v_lanes || v_step_lanes;
        v_changes := case when v_parents is not null then dormouse.join(v_parents, v_rounds, v_done, p_now) end;
        if v_parents is not null then
            v_effects.queues := v_effects.queues || dormouse.queues_to_poke(v_parents);
        end if;
        v_woken := true;
    end loop;
    if v_lanes is not null then
        v_effects := dormouse.merge(v_effects, dormouse.settle_lanes(v_namespaces, v_lanes));
    end if;
    return v_effects;
end
$$;

-- Applies what several share a statement for, and keeps back what would wait for a stranger: a change that enters a
-- status in which a key counts as taken waits for whoever is inserting that key. If there is such a one, those that
-- might be it are tried one by one, and soon given up.
create or replace function dormouse.apply_what_can_be(
    p_changes dormouse.change[], p_now timestamptz, out effects dormouse.effects, out kept_back integer
) language plpgsql as $$
declare
    v_plain dormouse.change[];
    v_special dormouse.change[];
    v_change dormouse.change;
begin
    kept_back := 0;
    select array_agg(c) filter (where i.key_scope is null),
        array_agg(c order by i.id) filter (where i.key_scope is not null)
    into v_plain, v_special
    from unnest(p_changes) c join dormouse.instances i on i.id = any (array[c.id]);
    if v_special is null then
        effects := dormouse.apply(v_plain, p_now);
        return;
    end if;
    perform set_config('lock_timeout', '50ms', true);
    begin
        effects := dormouse.apply(p_changes, p_now);
        return;
    exception when lock_not_available then
        effects := dormouse.apply(v_plain, p_now);
    end;
    foreach v_change in array coalesce(v_special, '{}') loop
        begin
            effects := dormouse.merge(effects, dormouse.apply(array[v_change], p_now));
        exception when lock_not_available then
            kept_back := kept_back + 1;
            perform set_config('lock_timeout', '1ms', true);
        end;
    end loop;
end
$$;

-- The queues of those that can run. A claim passes over a row that is locked, so whoever has locked it makes workers look again.
create or replace function dormouse.queues_to_poke(p_ids bigint[]) returns text[] language sql stable as $$
    select array_agg(distinct i.queue)
    from unnest(p_ids) locked (id) join dormouse.instances i on i.id = any (array[locked.id])
    where i.status = 'runnable' and not i.blocked and not i.paused
$$;

-- Takes ended children off their parents' barriers, once per parent however many ended together. Every end counts, or,
-- where the barrier has something to spare, only one that is done, and any other takes from that. The changes it
-- returns wake those whose barrier is released; one that lets go of the rest is woken by the clock, which does that first.
create or replace function dormouse.join(p_parents bigint[], p_rounds integer[], p_done boolean[], p_now timestamptz)
returns dormouse.change[] language plpgsql as $$
declare
    v_changes dormouse.change[];
begin
    perform from dormouse.instances where id = any (p_parents) order by id for no key update;
    with ends as materialized (
        select parent, round, count(*)::integer as ended, count(*) filter (where not done)::integer as undone
        from unnest(p_parents, p_rounds, p_done) child (parent, round, done) group by parent, round
    ), parents as materialized (
        select i as head, i.*, b.spare, coalesce(b.cancels_rest, false) as cancels_rest, ends.undone,
            i.barrier - case when b.spare is null then ends.ended else ends.ended - ends.undone end as to_come
        from ends join dormouse.instances i on i.id = any (array[ends.parent])
        left join dormouse.barriers b on b.instance = any (array[i.id]) and b.round = any (array[i.round])
        where i.round = ends.round and i.status = 'awaiting_children' and i.barrier > 0
    ), lowered as (
        update dormouse.instances i set barrier = p.to_come
        from parents p where i.id = any (array[p.id]) and p.to_come > 0 and coalesce(p.spare >= p.undone, true)
    ), spared as (
        update dormouse.barriers b set spare = p.spare - p.undone
        from parents p where b.instance = any (array[p.id]) and b.round = any (array[p.round]) and p.spare >= p.undone and p.undone > 0
    )
    select array_agg(case
        when p.cancels_rest then dormouse.changed(p.head, p.status, p_barrier => 0, p_wake_at => p_now)
        else dormouse.changed(
            p.head, 'runnable', p_runnable_at => p_now, p_barrier => 0, p_wake => 'children',
            p_kind => 'children.joined', p_data => json_build_object('round', p.round)
        )
    end)
    into v_changes from parents p where p.to_come <= 0 or p.spare < p.undone;
    return v_changes;
end
$$;
