-- Takes runnable rows for a worker, by priority and the turns of its shares (turns.sql), each with everything its step may
-- ask for. What is large, an inbox or the children of a round, is `apart`: it is read for one row at a time, when its step
-- starts. A row whose key forbids that it runs is returned with the key's holder, and not taken.
create or replace function dormouse.claim(
    p_worker bigint, p_queue text, p_namespaces text[], p_machines text[], p_versions integer[],
    p_rows_max integer, p_later_than integer, p_turn_priorities integer[], p_turn_shares text[], p_turn_remains integer[],
    p_places integer
) returns table (
    id bigint, namespace text, key text, machine text, version integer, step text, seq bigint,
    attempt integer, wake text, awaits text[], inbox json, children json, keeps_history boolean,
    at timestamptz, state json, parent bigint, parent_round integer, parent_index integer, rival bigint, apart boolean,
    lane text, barrier integer, round integer, key_scope text, runnable_at timestamptz, priority integer, share text,
    remains integer, trace text, starts text
) language plpgsql as $$
#variable_conflict use_column
declare
    v_now constant timestamptz := dormouse.now();
    v_next record;
    v_ids bigint[];
    v_id bigint;
    v_holder bigint;
    v_rivals bigint[];
    v_holders bigint[];
    v_busy bigint[] := '{}';
    v_shares text[];
    v_remains integer[];
    v_starts text[];
    v_wake_at timestamptz;
    v_held_back boolean := false;
    v_wait text := '50ms';
begin
    -- What a worker without a lease took, no reaper would find; and while a reaper looks, it has none.
    if not pg_try_advisory_xact_lock_shared(1685025390, (p_worker % 2147483647)::integer) then
        return;
    end if;
    if not exists (select from dormouse.workers w where w.id = p_worker and w.lease_until >= v_now) then
        return;
    end if;
    -- Losing a claim to a power loss means it had not happened yet: no wait for the disk.
    perform set_config('synchronous_commit', 'off', true);
    v_next := dormouse.next_rows(
        p_queue, p_namespaces, p_machines, p_versions, p_rows_max, p_later_than, p_turn_priorities, p_turn_shares,
        p_turn_remains
    );
    v_ids := v_next.ids;
    if v_ids = '{}' then
        return;
    end if;
    v_shares := v_next.shares;
    v_remains := v_next.remains;
    if exists (select from dormouse.limits m where m.interval_ns is not null) then
        select t.starts, t.wake_at into v_starts, v_wake_at from dormouse.take_starts(v_ids, p_places, v_now) t;
        -- What was started is not forgotten, or it could be started again in the same period.
        if 'now' = any (v_starts) then
            perform set_config('synchronous_commit', 'on', true);
        end if;
        v_held_back := coalesce('held' = any (v_starts), false);
        select coalesce(array_agg(t.id order by t.place), '{}'), array_agg(t.share order by t.place),
            array_agg(t.remains order by t.place), array_agg(t.starts order by t.place)
        into v_ids, v_shares, v_remains, v_starts
        from unnest(v_ids, v_shares, v_remains, v_starts) with ordinality t (id, share, remains, starts, place)
        where t.starts is null or t.starts in ('now', 'ahead');
    end if;
    -- A list of statuses may make a key taken or free by the claim itself: these rows are taken one after the
    -- other, as if each were claimed alone.
    for v_id in
        select i.id from unnest(v_ids) with ordinality locked (id, place)
        join dormouse.instances i on i.id = any (array[locked.id])
        where i.key_scope is not null and i.key_scope <> 'always'
        order by locked.place
    loop
        select dormouse.key_holder(i.namespace, i.key) into v_holder from dormouse.instances i
        where i.id = v_id and strpos(i.key_scope, 'executing') > 0;
        if v_holder <> v_id then
            v_rivals := v_rivals || v_id;
            v_holders := v_holders || v_holder;
        else
            -- Somebody may be inserting the key at this moment: that is not waited for by all the others.
            begin
                perform set_config('lock_timeout', v_wait, true);
                update dormouse.instances i set status = 'executing' where i.id = v_id;
            exception when lock_not_available then
                v_busy := v_busy || v_id;
                v_wait := '1ms';
            end;
        end if;
    end loop;
    return query
    with taken as (
        update dormouse.instances i set status = 'executing', worker = p_worker, changed_at = v_now
        from unnest(v_ids, v_shares, v_remains, v_starts) with ordinality locked (id, turn_of, remains, starts, place)
        where i.id = any (array[locked.id]) and i.id <> all (v_busy || v_rivals)
        returning i.*, locked.turn_of, locked.remains, locked.starts, locked.place
    ), counted as (
        insert into dormouse.counts (namespace, queue, machine, version, step, status, count)
        select t.namespace, t.queue, t.machine, t.version, t.step, 'runnable', -count(*) from taken t
        group by t.namespace, t.queue, t.machine, t.version, t.step
    ), answer as (
        select t.place, t.priority, t.turn_of, t.remains, t.id, t.namespace, t.key, t.machine, t.version, t.step, t.seq,
            t.attempt, t.wake, t.awaits, t.inbox, t.barrier, t.round, t.keeps_history, t.state,
            t.parent, t.parent_round, t.parent_index, null::bigint as rival,
            t.inbox_bytes > 65536 or (t.barrier is not null and dormouse.is_large_round(t.id, t.round)) as apart,
            t.lane, t.key_scope, t.runnable_at, t.trace, t.starts
        from taken t
        union all
        select null, null, null, null, r.id, null, null, null, null, null, null, null, null, null, null, null, null, null,
            null, null, null, null, r.holder, null, null, null, null, null, null
        from unnest(v_rivals, v_holders) r (id, holder)
        union all
        -- Not a row: whether some were left that must start at once, and when a lane is settled next.
        select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
            null, null, null, null, null, v_held_back, null, null, v_wake_at, null, null
        where v_held_back or v_wake_at is not null
    )
    select a.id, a.namespace, a.key, a.machine, a.version, a.step, a.seq, a.attempt, a.wake, a.awaits,
        -- What `dormouse.inbox` tells, without a call for each row.
        case when a.inbox > 0 and not a.apart then (
            select json_agg(json_build_object('id', s.id, 'name', s.name, 'payload', s.payload::text,
                'dedup_key', s.dedup_key, 'at', s.at, 'trace', s.trace) order by s.id)
            from dormouse.signals s where s.instance = a.id and not s.consumed
        ) end,
        case when a.barrier is not null and not a.apart then dormouse.children(a.id, a.round) end,
        a.keeps_history, v_now, a.state, a.parent, a.parent_round, a.parent_index, a.rival, a.apart, a.lane,
        a.barrier, a.round, a.key_scope, a.runnable_at, a.priority, a.turn_of, a.remains, a.trace, a.starts
    from answer a order by a.place;
end
$$;

-- Whether a round's children are more, or larger, than a claim should bring for one row. What is stored small is looked at
-- as it is when it is not compressed.
create or replace function dormouse.is_large_round(p_parent bigint, p_round integer) returns boolean
language plpgsql stable as $$
declare
    v_children integer;
    v_bytes bigint;
begin
    select count(*), sum(coalesce(pg_column_size(c.output), 0) + case when c.status <> 'done' then pg_column_size(c.state) else 0 end)
    into v_children, v_bytes from (
        select output, status, state from dormouse.instances
        where parent = p_parent and parent_round = p_round and parent is not null limit 33
    ) c;
    if v_children > 32 or v_bytes > 65536 then
        return true;
    end if;
    return coalesce((
        select sum(coalesce(octet_length(output::text), 0) + case when status <> 'done' then octet_length(state::text) else 0 end)
        from dormouse.instances where parent = p_parent and parent_round = p_round and parent is not null
    ) > 65536, false);
end
$$;

-- How many bytes a step of this instance reads besides its state: of its inbox, and of its round's children.
create or replace function dormouse.reading(
    p_id bigint, out inbox_bytes bigint, out children_bytes bigint, out round integer
) language plpgsql stable as $$
begin
    select i.inbox_bytes, case when i.barrier is not null then i.round end into inbox_bytes, round
    from dormouse.instances i where i.id = p_id;
    children_bytes := (
        select sum(coalesce(octet_length(c.output::text), 0)
            + case when c.status <> 'done' then octet_length(c.state::text) else 0 end)
        from dormouse.instances c
        where c.parent = p_id and c.parent_round = reading.round and c.parent is not null
    );
end
$$;

-- One round of a parent's children, by instances_parent. Of those that are done, the output is enough.
create or replace function dormouse.children(p_parent bigint, p_round integer) returns json
language plpgsql stable as $$
begin
    return (
        select json_agg(json_build_object('id', id, 'index', parent_index, 'machine', machine, 'key', key, 'version', version,
            'status', status, 'step', step, 'error', case when status = 'cancelled' then cancel_reason else last_error end, 'output', output::text,
            'state', case when status <> 'done' then state::text end) order by id)
        from dormouse.instances where parent = p_parent and parent_round = p_round and parent is not null
    );
end
$$;
