-- Takes claims back from workers, as far as no other transaction holds the rows: those at these numbers, if any are
-- given. A lost try counts as one; the step runs again, in its old place, with its old inputs. One that was lost with its
-- worker is a crash: after so many in a row, with no commit between them, its instance has failed. From the second crash
-- on it runs again only after a pause, which is another one for each row: whichever of them kills its worker, the others do
-- not run beside it every time. A claim on which no step ran leaves no trace.
drop function if exists dormouse.take_back(bigint[], bigint[]);

-- How long a step rests that has crashed more than once in a row: a quarter of a second, twice as long each time, and up to
-- as much again by its place among those that were lost together.
create or replace function dormouse.crash_pause(p_crashes integer, p_place bigint) returns interval
language sql immutable as $$
    select ((250000::bigint << least(p_crashes - 1, 8)) * (64 + p_place % 64) / 64) * interval '1 microsecond'
$$;

create or replace function dormouse.take_back(
    p_workers bigint[], p_ids bigint[], p_seqs bigint[], p_tried boolean, p_crashes_max integer,
    out taken integer, out effects dormouse.effects
) language plpgsql as $$
declare
    v_now constant timestamptz := dormouse.now();
    v_trees bigint[];
    v_locked bigint[];
    v_changes dormouse.change[];
    v_applied record;
    v_cancelled bigint[];
    v_ending bigint[];
    v_id bigint;
begin
    -- Whoever wanted one cancelled gets it now, with its children, so all of them are needed.
    v_trees := array(
        select unnest(dormouse.tree(id)) from dormouse.instances where id = any (p_ids) and cancel_requested
    );
    v_ending := array(
        select id from dormouse.instances
        where id = any (p_ids) and not cancel_requested and crashes_seq = seq and crashes + 1 >= p_crashes_max
            or id = any (p_ids) and not cancel_requested and p_crashes_max <= 1
    );
    v_locked := coalesce(
        dormouse.lock(array(select distinct unnest(p_ids || v_trees)), v_trees || v_ending, false), p_ids
    );
    select array_agg(dormouse.changed(
            i.head, case when i.id = any (v_ending) then 'failed' when i.again_at is not null then 'scheduled'
                else 'runnable' end,
            p_attempt => i.attempt + p_tried::integer, p_wake_at => case when i.id <> all (v_ending) then i.again_at end,
            p_error => case when i.id = any (v_ending) then i.crash_error end,
            p_kind => case when p_tried then 'reaped' end, p_data => json_build_object('worker', i.worker_name),
            p_then_kind => case when i.id = any (v_ending) then 'failed' end,
            p_then_data => case when i.id = any (v_ending) then json_build_object('error', i.crash_error) end
        )) filter (where not i.cancel_requested),
        array_agg(i.id) filter (where i.cancel_requested), count(*)
    into v_changes, v_cancelled, taken
    from (
        select i as head, i.*, w.name as worker_name,
            format('its worker died, or lost its lease, %s times in a row while step %s ran: it is not tried again; '
                'retry the instance once the cause is mended',
                case when i.crashes_seq = i.seq then i.crashes else 0 end + 1, to_json(i.step)) as crash_error,
            case when p_crashes_max is not null and i.crashes_seq = i.seq and i.crashes > 0 then
                v_now + dormouse.crash_pause(i.crashes, row_number() over (order by i.id) - 1)
            end as again_at
        from unnest(v_locked) held (id) join dormouse.instances i on i.id = any (array[held.id])
        left join dormouse.workers w on w.id = any (array[i.worker])
        where i.id = any (p_ids) and i.worker = any (p_workers)
            and (p_seqs is null or i.seq = p_seqs[array_position(p_ids, i.id)])
            and (not i.cancel_requested or dormouse.tree(i.id) <@ v_locked)
    ) i;
    if v_changes is not null then
        if p_tried then
            -- As of the transition that is about to be applied.
            update dormouse.instances i set
                crashes = case when i.crashes_seq = i.seq then i.crashes else 0 end + (p_crashes_max is not null)::integer,
                crashes_seq = i.seq + 1
            from unnest(v_changes) c where i.id = any (array[c.id]);
        end if;
        select a.effects, a.kept_back into v_applied from dormouse.apply_what_can_be(v_changes, v_now) a;
        effects := v_applied.effects;
        taken := taken - v_applied.kept_back;
    end if;
    foreach v_id in array coalesce(v_cancelled, '{}') loop
        effects := dormouse.merge(effects, (dormouse.cancel_all(v_id, v_now)).effects);
    end loop;
end
$$;

-- Gives back a worker's own claims, each at the number at which it was claimed. Those that another transaction holds are
-- still claimed, and told.
drop function if exists dormouse.release(bigint, bigint[], bigint[], boolean);
create or replace function dormouse.release(
    p_worker bigint, p_ids bigint[], p_seqs bigint[], p_tried boolean, out busy bigint[], out effects dormouse.effects
) language plpgsql as $$
declare
    v_taken record;
begin
    perform set_config('synchronous_commit', 'off', true);
    select t.effects into v_taken from dormouse.take_back(array[p_worker], p_ids, p_seqs, p_tried, null) t;
    effects := v_taken.effects;
    busy := array(
        select i.id from unnest(p_ids, p_seqs) claim (id, seq)
        join dormouse.instances i on i.id = any (array[claim.id]) and i.seq = claim.seq and i.worker = p_worker
    );
end
$$;

-- Keeps a worker from claiming until this transaction ends. One that is claiming at this moment is waited for, as that
-- takes no time; but not for ever, as its connection may be dead.
create or replace function dormouse.stop_claims(p_worker bigint) returns boolean
language plpgsql as $$
begin
    for i in 1..20 loop
        if pg_try_advisory_xact_lock(1685025390, (p_worker % 2147483647)::integer) then
            return true;
        end if;
        perform pg_sleep(0.01);
    end loop;
    return false;
end
$$;

-- Takes back claims of workers whose lease is over. One that is being reaped cannot claim: what it held is all there
-- is.
create or replace function dormouse.reap(
    p_rows_max integer, p_crashes_max integer, out reaped integer, out effects dormouse.effects
) language plpgsql as $$
declare
    v_now constant timestamptz := dormouse.now();
    v_workers bigint[];
    v_ids bigint[];
    v_seen bigint[] := '{}';
    v_taken record;
begin
    perform set_config('synchronous_commit', 'off', true);
    v_workers := array(
        select w.id from dormouse.workers w
        where w.lease_until < v_now
            and dormouse.stop_claims(w.id)
        order by w.id
    );
    reaped := 0;
    if cardinality(v_workers) = 0 then
        return;
    end if;
    -- Rows whose lanes cannot be had make room for those behind them, a few times over.
    for round in 1..8 loop
        v_ids := array(
            select i.id from unnest(v_workers) with ordinality w (id, place) cross join lateral (
                select i.id from dormouse.instances i
                where i.worker = w.id and i.worker is not null and i.id <> all (v_seen)
                order by i.id limit p_rows_max - reaped
                for no key update skip locked
            ) i order by w.place, i.id limit p_rows_max - reaped
        );
        exit when v_ids = '{}';
        select t.taken, t.effects into v_taken from dormouse.take_back(v_workers, v_ids, null, true, p_crashes_max) t;
        reaped := reaped + v_taken.taken;
        effects := dormouse.merge(effects, v_taken.effects);
        v_seen := v_seen || v_ids;
        exit when reaped = p_rows_max or v_taken.taken = cardinality(v_ids);
    end loop;
    if reaped < p_rows_max then
        -- What another transaction holds is still the worker's.
        delete from dormouse.workers w where w.id = any (v_workers) and (
            select true from dormouse.instances i where i.worker = w.id and i.worker is not null limit 1
        ) is null;
    end if;
end
$$;
