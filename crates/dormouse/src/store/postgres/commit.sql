-- Commits outcomes that workers have decided. Every one proves its ownership by worker and seq; a stale one changes nothing.
-- What only the database knows is filled in here: the moment, what was consumed, how many children were inserted, the unit.
-- The receipts: `held` (run on), `released`, `cancel` (someone wants it cancelled: nothing changed yet), `cancelled`,
-- `moved` (what it was decided by no longer holds: the inbox comes with it, and the worker decides again), `stale`, and
-- `busy` (another transaction holds the row, and the caller did not want to wait).
create or replace function dormouse.commit(
    p_worker bigint, p_batch json, p_wait boolean,
    out receipts text[], out seqs bigint[], out inboxes json[], out at timestamptz, out effects dormouse.effects
) language plpgsql as $$
declare
    v_batch dormouse.decided[];
    v_owned boolean[];
    v_holds boolean[];
    v_locked bigint[];
    v_lanes integer[];
    v_lanes_for bigint[];
    v_children dormouse.arrival[];
    v_spawned record;
    v_parents bigint[];
    v_inserted integer[];
    v_changes dormouse.change[];
    v_opened record;
begin
    select array_agg(o order by o.ord) into v_batch
    from json_populate_recordset(null::dormouse.decided, p_batch) o;
    -- A key that another transaction inserts at this moment is waited for in any case, but not for long.
    perform set_config('lock_timeout', case when p_wait then '500ms' else '100ms' end, true);
    select array_agg(dormouse.lane_number(c.namespace, c.lane)), array_agg(o.id) into v_lanes, v_lanes_for
    from unnest(v_batch) o cross join lateral json_to_recordset(o.children) c (namespace text, lane text)
    where o.children is not null and c.lane is not null;
    if exists (select from unnest(v_batch) o where o.moves) then
        select v_lanes || array_agg(dormouse.lane_number(i.namespace, o.lane)), v_lanes_for || array_agg(o.id)
        into v_lanes, v_lanes_for
        from unnest(v_batch) o join dormouse.instances i on i.id = any (array[o.id])
        where o.moves and o.lane is not null;
    end if;
    v_locked := dormouse.lock(
        array(select id from unnest(v_batch)),
        array(select id from unnest(v_batch) where status in ('done', 'failed')),
        p_wait, v_lanes, v_lanes_for
    );
    at := dormouse.now();
    -- Which of them are the worker's to commit, and what they were decided by still holds, by their place in the batch.
    -- (`is not distinct from` keeps the planner from looking through all that the worker holds.)
    select array_agg(coalesce((v_locked is null or o.id = any (v_locked)) and i.worker is not distinct from p_worker
            and i.seq = o.seq and not i.cancel_requested, false) order by o.ord),
        array_agg(coalesce(i.inbox = coalesce(o.inbox_seen, i.inbox)
            and (o.status <> 'executing' or (not i.paused and i.inbox_bytes <= 65536)), false) order by o.ord)
    into v_owned, v_holds
    from unnest(v_batch) o left join dormouse.instances i on i.id = any (array[o.id]);
    v_owned := array(
        select owned and holds from unnest(v_owned, v_holds) with ordinality o (owned, holds, ord) order by o.ord
    );
    -- All children in one go: two groups with the same keys must not wait for each other.
    v_children := array(
        select row(
            row_number() over (order by o.ord, c.ord), c.namespace, c.machine, c.version, c.step, c.state, c.queue,
            c.priority, c.at_us, c.in_us, c.lane, c.key, c.key_scope, c.keeps, c.forked, c.awaits, c.await_at_us,
            c.await_in_us, c.signals, o.id, o.cascade, c.ord - 1, c.tags, c.inbox_max,
            c.inbox_bytes_max, null, c.share, c.trace, c.cost
        )::dormouse.arrival
        from unnest(v_batch) o
        cross join lateral json_populate_recordset(null::dormouse.arrival, o.children) c
        where o.children is not null and v_owned[o.ord]
        order by o.ord, c.ord
    );
    if cardinality(v_children) > 0 then
        select s.ids, s.effects into v_spawned from dormouse.insert_all(v_children) s;
        effects := v_spawned.effects;
        select array_agg(parent), array_agg(inserted) into v_parents, v_inserted from (
            select c.parent, count(v_spawned.ids[c.ord])::integer as inserted
            from unnest(v_children) c group by c.parent
        ) spawned;
    end if;
    if exists (select from unnest(v_batch) o where o.unit is not null) then
        select u.ids, u.first_late, u.effects into v_opened from dormouse.open_units(v_batch, v_owned, at) u;
        effects := dormouse.merge(effects, v_opened.effects);
    else
        select null::bigint[] as ids, null::timestamptz[] as first_late into v_opened;
    end if;
    v_changes := dormouse.filled_in(
        p_worker, v_batch, v_owned, v_parents, v_inserted, v_opened.ids, v_opened.first_late, at
    );
    if v_changes is not null then
        perform dormouse.consume(v_batch, v_owned);
        effects := dormouse.merge(effects, dormouse.apply(v_changes, at));
        perform dormouse.raise_barriers(v_batch, v_owned, v_parents, v_inserted);
        if exists (select from unnest(v_batch) o where o.moves) then
            effects := dormouse.merge(effects, dormouse.change_lanes(v_batch, v_owned));
        end if;
        if exists (select from unnest(v_batch) o where o.mail is not null) then
            perform dormouse.send_mail(v_batch, v_owned, at);
        end if;
        if v_opened.ids is not null then
            effects.queues := effects.queues || dormouse.let_go_unparked(v_opened.ids, at);
        end if;
    end if;
    select array_agg(case
            when v_owned[o.ord] and i.status = 'executing' and i.worker = p_worker then 'held'
            when v_owned[o.ord] then 'released'
            when o.id <> all (v_locked) and i.id is not null then 'busy'
            when i.worker = p_worker and i.seq = o.seq and i.cancel_requested then 'cancel'
            when i.worker = p_worker and i.seq = o.seq then 'moved'
            when o.again then dormouse.receipt_before(p_worker, o, i, at)
            else 'stale'
        end order by o.ord),
        array_agg(i.seq order by o.ord),
        array_agg(case
            when not v_owned[o.ord] and i.worker = p_worker and i.seq = o.seq then json_build_object(
                'paused', i.paused, 'inbox_bytes', i.inbox_bytes, 'arrived', case when o.inbox_seen is not null then dormouse.inbox_after(i.id, o.seen_last) end)
            when i.worker = p_worker and i.status = 'executing' and i.inbox > 0 then dormouse.inbox(i.id)
        end order by o.ord)
    into receipts, seqs, inboxes
    from unnest(v_batch) o left join dormouse.instances i on i.id = any (array[o.id]);
end
$$;

-- The changes that were decided, with what only the database knows.
create or replace function dormouse.filled_in(
    p_worker bigint, p_batch dormouse.decided[], p_owned boolean[], p_parents bigint[], p_inserted integer[],
    p_units bigint[], p_first_late timestamptz[], p_now timestamptz
) returns dormouse.change[] language plpgsql as $$
declare
    v_changes dormouse.change[];
begin
    select array_agg(dormouse.change_of(
        p_id => o.id,
        p_status => case when not s.spawns then o.status when s.barrier > 0 then 'awaiting_children' else 'runnable' end,
        p_version => o.version, p_step => o.step, p_state => o.state::json, p_attempt => o.attempt,
        p_runnable_at => case when o.keeps_place and coalesce(s.barrier > 0, true) then i.runnable_at else p_now end,
        p_worker => case when o.status = 'executing' then p_worker end,
        p_wake_at => case
            when s.barrier = 0 then null
            when u.id is not null then case when o.arms then least(w.until, u.first_late) end
            when o.arms then w.until
        end,
        p_wake => case when s.barrier = 0 then 'children' when not s.spawns then o.wake end,
        p_awaits => o.awaits,
        p_inbox => case when o.drops_inbox then 0 else i.inbox - coalesce(cardinality(o.consumes), 0) end,
        p_barrier => case when s.spawns then s.barrier else o.barrier end,
        p_round => o.round, p_paused => i.paused, p_error => o.last_error, p_output => o.output::json,
        p_kind => o.kind,
        p_data => case
            when s.spawns then dormouse.spawn_data(o.round, s.inserted, coalesce(json_array_length(o.children), 0) - s.inserted,
                s.barrier, dormouse.spare(o, s.inserted), w.until, w.consumed, o.data)
            when o.kind = 'unit.opened' then
                dormouse.with_unit(dormouse.event_data(o.data, o.moment, w.until, w.consumed), u.id)
            else dormouse.event_data(o.data, o.moment, w.until, w.consumed)
        end,
        p_then_kind => o.then_kind,
        p_then_data => case
            when o.kind = 'unit.opened' then dormouse.with_unit(o.then_data::json, u.id)
            else o.then_data::json
        end,
        p_run => dormouse.run_of(o.started_us, o.took_us, o.progress)
    ) order by o.ord)
    into v_changes
    from unnest(p_batch) o join dormouse.instances i on i.id = any (array[o.id])
    cross join lateral (
        select dormouse.moment(o.at_us, o.in_us, p_now) as until,
            case when o.consumes is not null then dormouse.consumed_data(o.id, o.consumes) end as consumed
    ) w
    -- A child whose key is taken is not inserted, and not waited for.
    cross join lateral (
        select spawns, inserted, case when spawns then least(coalesce(o.quorum, inserted), inserted) end as barrier
        from (select o.kind = 'children.spawned', coalesce(p_inserted[array_position(p_parents, o.id)], 0))
            n (spawns, inserted)
    ) s
    cross join lateral (select p_units[o.ord] as id, p_first_late[o.ord] as first_late) u
    where p_owned[o.ord];
    return v_changes;
end
$$;

-- What an event says of a unit whose number the worker did not know.
create or replace function dormouse.with_unit(p_data json, p_unit bigint) returns json
language sql stable as $$
    select json_object_agg(d.key, case when d.key = 'unit' then to_json(p_unit) else d.value end)
    from json_each(p_data) d where p_data is not null having count(*) > 0
$$;

-- Ends other than `done` that a barrier on so many children bears; null: every end counts.
create or replace function dormouse.spare(o dormouse.decided, p_inserted integer) returns integer
language sql stable as $$
    select case
        when o.fail_fast then 0
        when o.counts_done then p_inserted - least(o.quorum, p_inserted)
    end
$$;

-- What an event says of signals that were consumed with it.
create or replace function dormouse.consumed_data(p_instance bigint, p_signals bigint[]) returns json
language plpgsql stable as $$
begin
    return (
        select json_agg(dormouse.signal_data(s.id, s.name, s.payload, null) order by s.id)
        from dormouse.signals s where s.instance = p_instance and s.id = any (p_signals) and not s.consumed
    );
end
$$;

-- What has arrived in an inbox after this signal, as `dormouse.inbox` tells it.
create or replace function dormouse.inbox_after(p_instance bigint, p_last bigint) returns json
language plpgsql stable as $$
begin
    return (
        select json_agg(json_build_object('id', s.id, 'name', s.name, 'payload', s.payload::text,
            'dedup_key', s.dedup_key, 'at', s.at, 'trace', s.trace) order by s.id)
        from dormouse.signals s where s.instance = p_instance and not s.consumed and s.id > coalesce(p_last, 0)
    );
end
$$;

-- Consumes what steps received, by id. A dedup key outlives its signal, until the instance is done: nothing
-- will ever read what a done one had.
create or replace function dormouse.consume(p_batch dormouse.decided[], p_owned boolean[]) returns void
language plpgsql as $$
begin
    with progressed as (
        select o.id as instance, received.id
        from unnest(p_batch) o cross join lateral unnest(o.consumes) received (id)
        where o.consumes is not null and p_owned[o.ord]
    ), kept as (
        update dormouse.signals s set consumed = true from progressed p
        where s.instance = any (array[p.instance]) and s.id = any (array[p.id])
            and num_nulls(s.dedup_key) = 0 and not s.consumed
        returning s.instance, octet_length(s.payload::text) as bytes
    ), gone as (
        delete from dormouse.signals s using progressed p
        where s.instance = any (array[p.instance]) and s.id = any (array[p.id]) and s.dedup_key is null
        returning s.instance, octet_length(s.payload::text) as bytes
    ), consumed as (
        select c.instance, count(*) as signals, sum(c.bytes) as bytes
        from (select * from kept union all select * from gone) c group by c.instance
    ), left_over as (
        -- An inbox that is empty then holds no bytes: that is written with its row.
        update dormouse.instances i set inbox_bytes = greatest(i.inbox_bytes - c.bytes, 0)
        from consumed c where i.id = any (array[c.instance]) and i.inbox > c.signals
    )
    delete from dormouse.signals s
    where s.instance = any (array(select o.id from unnest(p_batch) o where o.drops_inbox and p_owned[o.ord]));
end
$$;

create or replace function dormouse.spawn_data(
    p_round integer, p_inserted integer, p_dropped integer, p_barrier integer, p_spare integer,
    p_until timestamptz, p_consumed json, p_data text
) returns json language sql stable as $$
    select json_object_agg(name, value order by place) from (values
        (1, 'round', to_json(p_round)), (2, 'inserted', to_json(p_inserted)), (3, 'dropped', to_json(p_dropped)),
        (4, 'barrier', to_json(p_barrier)), (5, 'until', coalesce(to_json(dormouse.told(p_until)), 'null')),
        (6, 'spare', to_json(p_spare)), (7, 'consumed', p_consumed),
        (8, 'mail', p_data::json -> 'mail'), (9, 'mail_total', p_data::json -> 'mail_total')
    ) told (place, name, value) where value is not null
$$;

-- Notes what is special about the barriers that a batch raised.
create or replace function dormouse.raise_barriers(
    p_batch dormouse.decided[], p_owned boolean[], p_parents bigint[], p_inserted integer[]
) returns void language plpgsql as $$
declare
    o dormouse.decided;
    v_inserted integer;
begin
    for o in
        select b.* from unnest(p_batch) b
        where b.kind = 'children.spawned' and p_owned[b.ord] and (b.counts_done or b.fail_fast or b.cancels_rest)
    loop
        v_inserted := coalesce(p_inserted[array_position(p_parents, o.id)], 0);
        delete from dormouse.barriers where instance = o.id;
        insert into dormouse.barriers (instance, round, spare, cancels_rest)
        select i.id, i.round, dormouse.spare(o, v_inserted), o.cancels_rest
        from dormouse.instances i where i.id = o.id;
    end loop;
end
$$;

-- What became of a commit whose answer was lost: its receipt, or `cancel` if it did not happen.
create or replace function dormouse.ask(
    p_worker bigint, p_batch json, out receipts text[], out seqs bigint[], out inboxes json[], out at timestamptz
) language plpgsql as $$
declare
    o dormouse.decided;
    i dormouse.instances;
begin
    select * into o from json_populate_recordset(null::dormouse.decided, p_batch);
    -- Whoever commits it at this moment holds the row.
    select * into i from dormouse.instances where id = o.id for no key update;
    at := dormouse.now();
    receipts := array[case
        when i.worker = p_worker and i.seq = o.seq then 'cancel'
        else dormouse.receipt_before(p_worker, o, i, at)
    end];
    seqs := array[i.seq];
    inboxes := array[dormouse.inbox(i.id)];
end
$$;

-- Commits one outcome in its step's own transaction. What it cannot have at once it does not keep a part of: another step
-- may hold the rest, and wait for that part.
create or replace function dormouse.commit_own(
    p_worker bigint, p_batch json,
    out receipts text[], out seqs bigint[], out inboxes json[], out at timestamptz, out effects dormouse.effects
) language plpgsql as $$
declare
    v_committed record;
begin
    select c.receipts, c.seqs, c.inboxes, c.at, c.effects into v_committed
    from dormouse.commit(p_worker, p_batch, false) c;
    if v_committed.receipts[1] = 'busy' then
        raise lock_not_available;
    end if;
    receipts := v_committed.receipts;
    seqs := v_committed.seqs;
    inboxes := v_committed.inboxes;
    at := v_committed.at;
    effects := v_committed.effects;
exception when lock_not_available then
    receipts := array['busy'];
    seqs := array[null::bigint];
    inboxes := array[null::json];
    at := dormouse.now();
    effects := null;
end
$$;

-- The receipt of a commit whose answer was lost. While the worker's lease holds, as it then has all along,
-- nobody else could have moved the row: if it is not where the outcome started, the outcome is committed. If it
-- is, and is not the worker's, the server crashed and forgot the claim. It may have forgotten it, let another worker
-- commit in our place, and given the row back to us: then it is not at the state that our outcome gave it.
create or replace function dormouse.receipt_before(
    p_worker bigint, o dormouse.decided, i dormouse.instances, p_now timestamptz
) returns text language plpgsql stable as $$
begin
    return case
        when not exists (select from dormouse.workers w where w.id = p_worker and w.lease_until >= p_now)
            then 'stale'
        when i.seq = o.seq then 'stale'
        when o.status = 'executing' and i.worker = p_worker and i.seq = o.seq + 1
            then case when i.step = o.step and i.state::text = o.state then 'held' else 'stale' end
        when i.status = 'cancelled' then 'cancelled'
        else 'released'
    end;
end
$$;
