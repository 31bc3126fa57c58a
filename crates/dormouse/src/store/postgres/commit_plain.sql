-- Commits what concerns one row alone: an outcome that ends, parks or releases an instance with no lane to hand on, no key
-- with a scope of its own, no parent that waits for its end, no children and no unit. One statement, where `dormouse.commit`
-- takes some ten: a single one took 0.9 ms of the server's time that way. It proves ownership by worker and seq, and that
-- what it was decided by still holds; whatever is special about a row makes it match nothing, and `dormouse.commit` says
-- what. The ids come sorted.
create or replace function dormouse.commit_plain(
    p_worker bigint, p_batch json,
    out ids bigint[], out seqs bigint[], out held boolean[], out inboxes json[], out at timestamptz,
    out effects dormouse.effects
) language plpgsql as $$
declare
    v_place constant bigint := dormouse.feed_place();
    v_queues text[];
    v_wake_at timestamptz;
    v_ended bigint[];
begin
    -- A row that another transaction holds must not keep the others waiting.
    perform set_config('lock_timeout', '500ms', true);
    at := dormouse.now();
    with outcome as materialized (
        select o.*, dormouse.moment(o.at_us, o.in_us, commit_plain.at) as until,
            o.status in ('done', 'failed') as ends, coalesce(cardinality(o.consumes), 0) as used,
            consumed.data as consumed, consumed.bytes as used_bytes
        from json_populate_recordset(null::dormouse.decided, p_batch) o
        left join lateral (
            select json_agg(dormouse.signal_data(s.id, s.name, s.payload, null) order by s.id) as data,
                sum(octet_length(s.payload::text)) as bytes
            from dormouse.signals s
            where o.consumes is not null and s.instance = o.id and s.id = any (o.consumes) and not s.consumed
        ) consumed on true
    ), saved as (
        update dormouse.instances i set
            status = o.status, version = o.version, step = o.step, state = coalesce(o.state::json, i.state),
            seq = i.seq + 1 + (o.then_kind is not null)::integer, attempt = o.attempt,
            runnable_at = case when o.keeps_place then i.runnable_at else commit_plain.at end,
            worker = case when o.status = 'executing' then p_worker end,
            wake_at = case when o.arms then o.until end, wake = o.wake, awaits = o.awaits, barrier = o.barrier,
            inbox = case when o.drops_inbox then 0 else i.inbox - o.used end,
            inbox_bytes = case when o.drops_inbox or i.inbox = o.used then 0
                else greatest(i.inbox_bytes - coalesce(o.used_bytes, 0), 0) end,
            joined = i.joined or o.ends, changed_at = commit_plain.at,
            ended_at = case when o.ends then commit_plain.at end, last_error = o.last_error, output = o.output::json
        from outcome o
        where i.id = any (array[o.id]) and i.seq = o.seq and i.worker is not distinct from p_worker
            and not i.cancel_requested and i.lane is null and i.key_scope is null
            and (i.parent is null or i.joined or not o.ends) and i.inbox = coalesce(o.inbox_seen, i.inbox)
            and (o.status <> 'executing' or (not i.paused and i.inbox_bytes <= 65536))
        returning i.id, i.seq, i.status, i.namespace, i.queue, i.machine, i.version, i.step, i.wake_at, i.inbox,
            i.paused, i.keeps_history, o.ends, o.until, o.consumed, o.consumes, o.drops_inbox, o.state, o.kind, o.data,
            o.moment, o.then_kind, o.then_data, o.started_us, o.took_us, o.progress
    ), kept as (
        -- A dedup key outlives its signal.
        update dormouse.signals g set consumed = true from saved s
        where s.consumes is not null and g.instance = any (array[s.id]) and g.id = any (s.consumes)
            and num_nulls(g.dedup_key) = 0
    ), gone as (
        delete from dormouse.signals g using saved s
        where (s.consumes is not null or s.drops_inbox) and g.instance = any (array[s.id])
            and (s.drops_inbox or (g.id = any (s.consumes) and g.dedup_key is null))
    ), recorded as (
        insert into dormouse.history (
            instance, seq, kind, version, step, at, data, state, id, started_at, took_us, progress
        )
        select s.id, event.seq, event.kind, s.version, s.step, commit_plain.at, event.data, event.state::json,
            dormouse.event_id(v_place), (event.run).started_at, (event.run).took_us, (event.run).progress
        from saved s cross join lateral (values
            (s.seq - (s.then_kind is not null)::integer, s.kind,
                dormouse.event_data(s.data, s.moment, s.until, s.consumed), s.state,
                dormouse.run_of(s.started_us, s.took_us, s.progress)),
            (s.seq, s.then_kind, s.then_data::json, null, null)
        ) event (seq, kind, data, state, run)
        where s.keeps_history and event.kind is not null
    ), counted as (
        insert into dormouse.counts (namespace, queue, machine, version, step, status, count)
        select s.namespace, s.queue, s.machine, s.version, s.step, s.status, count(*)
        from saved s where s.status <> 'executing'
        group by s.namespace, s.queue, s.machine, s.version, s.step, s.status
    )
    select array_agg(s.id), array_agg(s.seq), array_agg(s.status = 'executing'),
        array_agg(case when s.status = 'executing' and s.inbox > 0 then dormouse.inbox_without(s.id, s.consumes) end),
        array_agg(distinct s.queue) filter (where s.status = 'runnable' and not s.paused),
        min(s.wake_at), array_agg(s.id) filter (where s.ends)
    into ids, seqs, held, inboxes, v_queues, v_wake_at, v_ended
    from saved s;
    effects := row(v_queues, v_wake_at, v_ended, null)::dormouse.effects;
end
$$;

-- The data of an event that a worker decided, with what only the database knows: a moment, and what was consumed.
create or replace function dormouse.event_data(p_data text, p_moment text, p_at timestamptz, p_consumed json)
returns json language sql stable as $$
    select ('{' || concat_ws(',',
        nullif(substr(p_data, 2, length(p_data) - 2), ''),
        '"' || p_moment || '":' || coalesce(to_json(dormouse.told(p_at))::text, 'null'),
        '"consumed":' || p_consumed::text
    ) || '}')::json
    where p_data is not null or p_moment is not null or p_consumed is not null
$$;

-- An inbox, as `dormouse.inbox` tells it, before what is consumed in the same statement is gone from it.
create or replace function dormouse.inbox_without(p_instance bigint, p_consumed bigint[]) returns json
language plpgsql stable as $$
begin
    return (
        select json_agg(json_build_object('id', s.id, 'name', s.name, 'payload', s.payload::text,
            'dedup_key', s.dedup_key, 'at', s.at, 'trace', s.trace) order by s.id)
        from dormouse.signals s
        where s.instance = p_instance and not s.consumed and s.id <> all (coalesce(p_consumed, '{}'))
    );
end
$$;
