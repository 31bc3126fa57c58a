-- The one clock: rows whose moment has come become runnable, by instances_due. What another transaction holds is
-- left for the next sweep, which comes soon.
create or replace function dormouse.due(
    p_rows_max integer, out woken integer, out next timestamptz, out at timestamptz,
    out effects dormouse.effects
) language plpgsql as $$
declare
    v_ids bigint[];
    v_locked bigint[];
    v_changes dormouse.change[];
    v_units bigint[];
    v_parent record;
    v_rest record;
    v_held bigint[] := '{}';
begin
    perform set_config('synchronous_commit', 'off', true);
    at := dormouse.now();
    v_ids := array(
        select id from dormouse.instances where wake_at <= due.at order by wake_at limit p_rows_max
    );
    woken := 0;
    if cardinality(v_ids) > 0 then
        v_locked := coalesce(dormouse.lock(v_ids, '{}', false), v_ids);
        -- Before they wake, some parents let go of the children that they leave behind.
        for v_parent in
            select i.id, i.round from unnest(v_locked) locked (id) join dormouse.instances i on i.id = locked.id
            join dormouse.barriers b on b.instance = i.id and b.round = i.round
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
        select array_agg(row(
                i.id, 'runnable', i.version, i.step, null, i.attempt, due.at, null, null,
                -- A backoff's end is no news: the retried step sees why it woke in the first place.
                case
                    when i.status = 'scheduled' then coalesce(i.wake, 'clock')
                    when i.status = 'awaiting_children' and i.barrier = 0 then 'children'
                    else 'timeout'
                end,
                i.awaits, i.inbox, i.barrier, i.round, i.paused, i.last_error, null,
                case i.status
                    when 'awaiting_signal' then 'signal.timeout'
                    when 'awaiting_children' then
                        case when i.barrier = 0 then 'children.joined' else 'children.timeout' end
                    else 'timer.fired'
                end,
                case when i.status = 'awaiting_children' and i.barrier = 0 then
                    json_build_object('round', i.round)
                end, null, null, null
            )::dormouse.change) filter (where i.status <> 'awaiting_completion'), count(*),
            array_agg(i.id order by i.id) filter (where i.status = 'awaiting_completion')
        into v_changes, woken, v_units
        from unnest(v_locked) locked (id) join dormouse.instances i on i.id = locked.id
        where i.wake_at <= due.at and i.id <> all (v_held);
        if v_changes is not null then
            effects := dormouse.merge(effects, dormouse.apply(v_changes, due.at));
        end if;
        if v_units is not null then
            effects := dormouse.merge(effects, dormouse.fire_units(v_units, due.at));
        end if;
    end if;
    -- What is due and could not be had is asked for again in a moment, not at once.
    select case when min(wake_at) <= due.at and woken < p_rows_max then due.at + interval '50 milliseconds'
        else min(wake_at) end
    into next from (
        select wake_at from dormouse.instances where wake_at is not null order by wake_at limit 1
    ) first;
end
$$;
