-- The one clock: rows whose moment has come become runnable, by instances_due. What another transaction holds, or whose
-- lane it holds, is passed over, and left for a sweep that comes soon. Kept signals expire by it, too.
create or replace function dormouse.due(
    p_rows_max integer, out woken integer, out expired integer, out next timestamptz, out at timestamptz,
    out effects dormouse.effects
) language plpgsql as $$
declare
    v_ids bigint[];
    v_locked bigint[];
    v_all bigint[] := '{}';
    v_seen bigint[] := '{}';
    v_missing integer[] := '{}';
    v_changes dormouse.change[];
    v_applied record;
    v_units bigint[];
    v_crashed bigint[];
    v_parent record;
    v_rest record;
    v_held bigint[] := '{}';
    v_lists bigint[];
    v_id bigint;
begin
    perform set_config('synchronous_commit', 'off', true);
    at := dormouse.now();
    woken := 0;
    effects := dormouse.due_lanes(due.at);
    -- Rows of lanes that cannot be had make room for those behind them, a few times over.
    for round in 1..8 loop
        v_ids := array(
            select i.id from dormouse.instances i
            where i.wake_at <= due.at and i.wake_at is not null and i.id <> all (v_seen)
                and (i.lane is null or dormouse.lane_number(i.namespace, i.lane) <> all (v_missing))
            order by i.wake_at, i.id limit p_rows_max - cardinality(v_all)
            for no key update skip locked
        );
        exit when v_ids = '{}';
        v_locked := dormouse.lock(v_ids, '{}', false);
        v_all := v_all || v_locked;
        v_seen := v_seen || v_ids;
        exit when cardinality(v_locked) = cardinality(v_ids) or cardinality(v_all) = p_rows_max;
        v_missing := v_missing || array(
            select dormouse.lane_number(i.namespace, i.lane)
            from unnest(v_ids) due_now (id) join dormouse.instances i on i.id = any (array[due_now.id])
            where i.lane is not null and i.id <> all (v_locked)
        );
    end loop;
    if v_all <> '{}' then
        -- Before they wake, some parents let go of the children that they leave behind.
        for v_parent in
            select i.id, i.round from unnest(v_all) locked (id)
            join dormouse.instances i on i.id = any (array[locked.id])
            join dormouse.barriers b on b.instance = any (array[i.id]) and b.round = any (array[i.round])
            where i.status = 'awaiting_children' and b.cancels_rest order by i.id
        loop
            -- Another of them may have let go of this one.
            continue when exists (
                select from dormouse.instances i where i.id = v_parent.id and i.status <> 'awaiting_children'
            );
            select r.remains, r.effects into v_rest
            from dormouse.cancel_rest(v_parent.id, v_parent.round, due.at) r;
            effects := dormouse.merge(effects, v_rest.effects);
            if v_rest.remains then
                v_held := v_held || v_parent.id;
            end if;
        end loop;
        select array_agg(dormouse.changed(
                i, 'runnable', p_runnable_at => due.at,
                -- A backoff's end is no news: the retried step sees why it woke in the first place.
                p_wake => case
                    when i.status = 'scheduled' then coalesce(i.wake, 'clock')
                    when i.status = 'awaiting_children' and i.barrier = 0 then 'children'
                    else 'timeout'
                end,
                p_kind => case i.status
                    when 'awaiting_signal' then 'signal.timeout'
                    when 'awaiting_children' then
                        case when i.barrier = 0 then 'children.joined' else 'children.timeout' end
                    else 'timer.fired'
                end,
                p_data => case when i.status = 'awaiting_children' and i.barrier = 0 then
                    json_build_object('round', i.round)
                end
            )) filter (where i.status <> 'awaiting_completion'), count(*),
            array_agg(i.id order by i.id) filter (where i.status = 'awaiting_completion'),
            array_agg(i.id) filter (where i.status = 'scheduled' and i.crashes_seq = i.seq and i.crashes > 0)
        into v_changes, woken, v_units, v_crashed
        from unnest(v_all) locked (id) join dormouse.instances i on i.id = any (array[locked.id])
        where case when i.wake_at <= due.at then i.id <> all (v_held) else false end;
        if v_crashed is not null then
            -- The end of a rest is no commit of the step: as of the transition that is about to be applied.
            update dormouse.instances i set crashes_seq = i.seq + 1
            from unnest(v_crashed) crashed (id) where i.id = any (array[crashed.id]);
        end if;
        if v_changes is not null then
            select a.effects, a.kept_back into v_applied from dormouse.apply_what_can_be(v_changes, due.at) a;
            effects := dormouse.merge(effects, v_applied.effects);
            woken := woken - v_applied.kept_back;
        end if;
        if v_units is not null then
            select array_agg(i.id) filter (where i.key_scope is null), array_agg(i.id) filter (where i.key_scope is not null)
            into v_units, v_lists
            from unnest(v_units) unit (id) join dormouse.instances i on i.id = any (array[unit.id]);
            effects := dormouse.merge(effects, dormouse.fire_units(v_units, due.at));
            foreach v_id in array coalesce(v_lists, '{}') loop
                begin
                    effects := dormouse.merge(effects, dormouse.fire_units(array[v_id], due.at));
                exception when lock_not_available then
                    woken := woken - 1;
                end;
            end loop;
        end if;
    end if;
    -- What is due and could not be had is asked for again in a moment; at once, if something became due just now, or if all
    -- that was asked for was had: some of it may have been let go by another instead of woken.
    select case when min(wake_at) <= due.at and woken < p_rows_max and (cardinality(v_all) < p_rows_max or exists (
            select from unnest(v_all) taken (id) join dormouse.instances i on i.id = any (array[taken.id])
            where i.wake_at <= due.at
        ))
        then least(due.at + interval '50 milliseconds', (due.effects).wake_at) else min(wake_at) end
    into next from (
        select wake_at from dormouse.instances where wake_at is not null order by wake_at limit 1
    ) first;
    next := least(next, (
        select case when w.at <= due.at then due.at + interval '50 milliseconds' else w.at end
        from dormouse.rate_wakes w order by w.at limit 1
    ));
    select k.expired, least(due.next, k.next) into expired, next from dormouse.expire_kept(due.at, p_rows_max) k;
end
$$;
