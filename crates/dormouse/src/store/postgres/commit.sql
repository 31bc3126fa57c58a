-- Commits outcomes. Every one proves its ownership by worker and seq; a stale one changes nothing. The receipts:
-- `held` (run on), `released`, `cancel` (someone wants it cancelled: nothing changed yet), `cancelled`, `stale`,
-- and `busy` (another transaction holds the row, and the caller did not want to wait).
create or replace function dormouse.commit(
    p_worker bigint, p_batch json, p_wait boolean,
    out receipts text[], out seqs bigint[], out inboxes json[], out at timestamptz, out effects dormouse.effects
) language plpgsql as $$
declare
    v_batch dormouse.outcome[];
    v_owned boolean[];
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
    from json_populate_recordset(null::dormouse.outcome, p_batch) o;
    -- A key that another transaction inserts at this moment is waited for in any case, but not for long.
    perform set_config('lock_timeout', case when p_wait then '500ms' else '100ms' end, true);
    select array_agg(dormouse.lane_number(c.namespace, c.lane)), array_agg(o.id) into v_lanes, v_lanes_for
    from unnest(v_batch) o cross join lateral json_to_recordset(o.children) c (namespace text, lane text)
    where o.children is not null and c.lane is not null;
    v_locked := dormouse.lock(
        array(select id from unnest(v_batch)),
        array(select id from unnest(v_batch) where kind in ('done', 'fail')),
        p_wait, v_lanes, v_lanes_for
    );
    at := dormouse.now();
    -- Which of them are the worker's to commit, by their place in the batch. (`is not distinct from` keeps the
    -- planner from looking through all that the worker holds.)
    v_owned := array(
        select coalesce((v_locked is null or o.id = any (v_locked)) and i.worker is not distinct from p_worker
            and i.seq = o.seq and not i.cancel_requested, false)
        from unnest(v_batch) o left join dormouse.instances i on i.id = any (array[o.id])
        order by o.ord
    );
    -- All children in one go: two groups with the same keys must not wait for each other.
    v_children := array(
        select row(
            row_number() over (order by o.ord, c.ord), c.namespace, c.machine, c.version, c.step, c.state, c.queue,
            c.priority, c.at_us, c.in_us, c.lane, c.key, c.key_scope, c.keeps, c.forked, c.awaits, c.await_at_us,
            c.await_in_us, c.signals, o.id, o.cascade, c.ord - 1, c.tags, c.inbox_max,
            c.inbox_bytes_max
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
        select u.ids, u.counts, u.to_come, u.first_late, u.effects into v_opened
        from dormouse.open_units(v_batch, v_owned, at) u;
        effects := dormouse.merge(effects, v_opened.effects);
    else
        select null::bigint[] as ids, null::integer[] as counts, null::integer[] as to_come,
            null::timestamptz[] as first_late into v_opened;
    end if;
    with owned as (
        select o.*, i.status as was, i.version as old_version, i.step as old_step, i.attempt, i.runnable_at,
            i.wake, i.awaits, i.inbox, i.inbox_bytes, i.barrier, i.round, i.paused, i.lane,
            dormouse.moment(o.at_us, o.in_us, commit.at) as moment,
            spawned.inserted, least(coalesce(o.quorum, 2147483647), spawned.inserted) as ends, case
                when o.fail_fast then 0
                when o.counts_done then spawned.inserted - least(o.quorum, spawned.inserted)
            end as spare,
            unseen.id as seen, unseen.data as seen_data,
            consumed.data as consumed, v_opened.ids[o.ord] as unit_id, v_opened.counts[o.ord] as asked,
            v_opened.to_come[o.ord] as to_come, v_opened.first_late[o.ord] as first_late
        from unnest(v_batch) o join dormouse.instances i on i.id = any (array[o.id])
        cross join lateral (
            select coalesce(v_inserted[array_position(v_parents, o.id)], 0) as inserted
        ) spawned
        -- The first awaited signal in the inbox that the parking step was not handed.
        left join lateral (
            select s.id, dormouse.signal_data(s.id, s.name, s.payload, s.dedup_key) as data
            from dormouse.signals s
            where o.kind = 'await' and i.inbox > coalesce(cardinality(o.received), 0) and s.instance = o.id
                and not s.consumed and s.name = any (o.names) and s.id <> all (coalesce(o.received, '{}'))
            order by s.id limit 1
        ) unseen on true
        left join lateral (
            select json_agg(dormouse.signal_data(s.id, s.name, s.payload, null) order by s.id) as data
            from dormouse.signals s
            where o.kind in ('next', 'sleep', 'spawn', 'dispatch') and o.received is not null and s.instance = o.id
                and s.id = any (o.received) and not s.consumed
        ) consumed on true
        where v_owned[o.ord]
    ), told as (
        select o.*,
            case o.kind
                -- One whose inbox is too large to come with a receipt is claimed again.
                when 'next' then case when o.hold and not o.paused and o.inbox_bytes <= 65536 then 'executing'
                    else 'runnable' end
                when 'replay' then case when o.in_us = 0 then 'runnable' else 'scheduled' end
                when 'sleep' then 'scheduled'
                when 'await' then case when o.seen is null then 'awaiting_signal' else 'runnable' end
                when 'spawn' then case when o.ends > 0 then 'awaiting_children' else 'runnable' end
                when 'dispatch' then case when o.asked > 0 then 'awaiting_completion' else 'runnable' end
                when 'done' then 'done'
                when 'fail' then 'failed'
            end as new_status,
            o.kind in ('done', 'fail') as is_end,
            o.kind in ('done', 'fail', 'replay') as keeps_wake
        from owned o
    )
    select array_agg(row(
            t.id, t.new_status,
            -- A version tells how to read the state, so it changes with it: an end leaves both as they were.
            case when t.is_end then t.old_version else t.version end,
            case when t.is_end then t.old_step else t.step end,
            case when not t.is_end then t.state::json end,
            case t.kind when 'replay' then t.attempt + 1 when 'done' then t.attempt when 'fail' then t.attempt
                else 0 end,
            -- In a lane it keeps its place: those behind it are meant to come after it.
            case when t.new_status <> 'runnable' or (t.kind = 'next' and t.lane is not null) then t.runnable_at
                else commit.at end,
            case when t.new_status = 'executing' then p_worker end,
            case
                when t.new_status in ('scheduled', 'awaiting_signal', 'awaiting_children') then t.moment
                when t.new_status = 'awaiting_completion' then least(t.moment, t.first_late)
            end,
            case
                when t.keeps_wake then t.wake
                when t.kind = 'await' and t.seen is not null then 'signal'
                when t.kind = 'spawn' and t.ends = 0 then 'children'
                when t.kind = 'dispatch' and t.asked = 0 then 'unit'
            end,
            case when t.keeps_wake then t.awaits when t.kind = 'await' then t.names end,
            case
                when t.kind = 'done' then 0
                else t.inbox - coalesce(json_array_length(t.consumed), 0)
            end,
            case when t.keeps_wake then t.barrier when t.kind = 'spawn' then t.ends
                when t.kind = 'dispatch' then t.to_come end,
            case when t.kind in ('spawn', 'dispatch') then t.round + 1 else t.round end,
            t.paused,
            case when t.kind in ('replay', 'fail') then t.error end,
            case when t.kind = 'done' then t.output::json end,
            case t.kind
                when 'next' then 'step.completed'
                when 'sleep' then 'step.completed'
                when 'replay' then 'step.retried'
                when 'await' then 'signal.waiting'
                when 'spawn' then 'children.spawned'
                when 'dispatch' then 'unit.opened'
                when 'done' then 'done'
                when 'fail' then 'failed'
            end,
            case t.kind
                when 'next' then
                    case when t.consumed is not null then json_build_object('consumed', t.consumed) end
                when 'sleep' then dormouse.sleep_data(t.moment, t.consumed)
                when 'replay' then json_build_object(
                    'attempt', t.attempt + 1, 'delay_ms', t.in_us / 1000, 'error', t.error)
                when 'await' then json_build_object('names', t.names, 'until', dormouse.told(t.moment))
                when 'spawn' then dormouse.spawn_data(t.round + 1, t.inserted,
                    coalesce(json_array_length(t.children), 0) - t.inserted, t.ends, t.spare, t.moment, t.consumed)
                when 'dispatch' then dormouse.opened_data(t.unit_id, t.unit, t.asked, t.moment, t.consumed)
                when 'done' then
                    case when t.inbox > coalesce(cardinality(t.received), 0) then dormouse.unread(t.id, t.received) end
                when 'fail' then json_build_object('error', t.error)
            end,
            case when t.seen is not null then 'signal.received' when t.asked = 0 then 'unit.completed' end,
            case when t.asked = 0 then json_build_object('unit', t.unit_id, 'completed', 0, 'failed', 0)
                else t.seen_data end,
            dormouse.run_of(t.started_us, t.took_us, t.progress)
        )::dormouse.change)
    into v_changes from told t;
    if v_changes is not null then
        perform dormouse.consume(v_batch, v_owned);
        effects := dormouse.merge(effects, dormouse.apply(v_changes, at));
        perform dormouse.raise_barriers(v_batch, v_owned, v_parents, v_inserted);
        if v_opened.ids is not null then
            perform dormouse.let_go_unparked(v_opened.ids, at);
        end if;
    end if;
    select array_agg(case
            when v_owned[o.ord] and i.status = 'executing' and i.worker = p_worker then 'held'
            when v_owned[o.ord] then 'released'
            when o.id <> all (v_locked) and i.id is not null then 'busy'
            when i.worker = p_worker and i.seq = o.seq then 'cancel'
            when o.again then dormouse.receipt_before(p_worker, o, i, at)
            else 'stale'
        end order by o.ord),
        array_agg(i.seq order by o.ord),
        array_agg(case
            when i.worker = p_worker and i.status = 'executing' and i.inbox > 0 then dormouse.inbox(i.id)
        end order by o.ord)
    into receipts, seqs, inboxes
    from unnest(v_batch) o left join dormouse.instances i on i.id = any (array[o.id]);
end
$$;

-- What no step has read of an inbox: up to 16 names with their counts, the most first; null if nothing.
create or replace function dormouse.unread(p_instance bigint, p_received bigint[]) returns json
language plpgsql stable as $$
begin
    return (
        with unread as (
            select name, count(*) as count from dormouse.signals
            where instance = p_instance and not consumed and name <> '$cancel'
                and id <> all (coalesce(p_received, '{}'))
            group by name
        ), first as (
            select name, count from unread order by count desc, name limit 16
        )
        select json_build_object(
            'unread', json_agg(json_build_object('name', f.name, 'count', f.count) order by f.count desc, f.name),
            'unread_total', (select sum(u.count) from unread u)
        ) from first f having count(*) > 0
    );
end
$$;

-- Consumes what steps received, by id. A dedup key outlives its signal, until the instance is done: nothing
-- will ever read what a done one had.
create or replace function dormouse.consume(p_batch dormouse.outcome[], p_owned boolean[]) returns void
language plpgsql as $$
begin
    with progressed as (
        select o.id as instance, received.id
        from unnest(p_batch) o cross join lateral unnest(o.received) received (id)
        where o.kind in ('next', 'sleep', 'spawn', 'dispatch') and p_owned[o.ord]
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
    where s.instance = any (array(select o.id from unnest(p_batch) o where o.kind = 'done' and p_owned[o.ord]));
end
$$;

create or replace function dormouse.sleep_data(p_until timestamptz, p_consumed json) returns json
language sql stable as $$
    select case
        when p_consumed is null then json_build_object('sleep_until', dormouse.told(p_until))
        else json_build_object('sleep_until', dormouse.told(p_until), 'consumed', p_consumed)
    end
$$;

create or replace function dormouse.spawn_data(
    p_round integer, p_inserted integer, p_dropped integer, p_barrier integer, p_spare integer,
    p_until timestamptz, p_consumed json
) returns json language sql stable as $$
    select json_object_agg(name, value order by place) from (values
        (1, 'round', to_json(p_round)), (2, 'inserted', to_json(p_inserted)), (3, 'dropped', to_json(p_dropped)),
        (4, 'barrier', to_json(p_barrier)), (5, 'until', coalesce(to_json(dormouse.told(p_until)), 'null')),
        (6, 'spare', to_json(p_spare)), (7, 'consumed', p_consumed)
    ) told (place, name, value) where value is not null
$$;

-- Notes what is special about the barriers that a batch raised.
create or replace function dormouse.raise_barriers(
    p_batch dormouse.outcome[], p_owned boolean[], p_parents bigint[], p_inserted integer[]
) returns void language plpgsql as $$
declare
    o dormouse.outcome;
    v_inserted integer;
begin
    for o in
        select b.* from unnest(p_batch) b
        where b.kind = 'spawn' and p_owned[b.ord] and (b.counts_done or b.fail_fast or b.cancels_rest)
    loop
        v_inserted := coalesce(p_inserted[array_position(p_parents, o.id)], 0);
        delete from dormouse.barriers where instance = o.id;
        insert into dormouse.barriers (instance, round, spare, cancels_rest)
        select i.id, i.round, case
                when o.fail_fast then 0
                when o.counts_done then v_inserted - least(o.quorum, v_inserted)
            end, o.cancels_rest
        from dormouse.instances i where i.id = o.id;
    end loop;
end
$$;

-- What became of a commit whose answer was lost: its receipt, or `cancel` if it did not happen.
create or replace function dormouse.ask(
    p_worker bigint, p_batch json, out receipts text[], out seqs bigint[], out inboxes json[], out at timestamptz
) language plpgsql as $$
declare
    o dormouse.outcome;
    i dormouse.instances;
begin
    select * into o from json_populate_recordset(null::dormouse.outcome, p_batch);
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
    p_worker bigint, o dormouse.outcome, i dormouse.instances, p_now timestamptz
) returns text language plpgsql stable as $$
begin
    return case
        when not exists (select from dormouse.workers w where w.id = p_worker and w.lease_until >= p_now)
            then 'stale'
        when i.seq = o.seq then 'stale'
        when o.kind = 'next' and o.hold and i.worker = p_worker and i.seq = o.seq + 1
            then case when i.step = o.step and i.state::text = o.state then 'held' else 'stale' end
        when i.status = 'cancelled' then 'cancelled'
        else 'released'
    end;
end
$$;
