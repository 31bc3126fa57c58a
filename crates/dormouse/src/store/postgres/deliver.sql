-- Delivers signals: takes the instance's lock whatever its status, stores the row, and wakes whoever is parked
-- on its name. Parking looks into the inbox under the same lock, so no interleaving loses a wake-up.
--
-- Most signals find an instance parked on their name, with no lane to queue up in and no special key: those are
-- delivered here, by one statement. `dormouse.deliver_any` takes the others, also those for which an inbox has no room.
create or replace function dormouse.deliver(
    p_batch json, p_wait_ms integer default null,
    out results text[], out ids bigint[], out wokes boolean[], out effects dormouse.effects
) language plpgsql as $$
declare
    v_now timestamptz;
    v_place bigint;
    v_batch dormouse.delivery[];
    v_special boolean;
    v_woken integer[];
    v_queues text[];
    v_rest integer[];
    v_sent json;
    v_any record;
begin
    -- In a caller's own transaction, how long to wait is the caller's choice.
    if p_wait_ms is not null then
        perform set_config('lock_timeout', p_wait_ms || 'ms', true);
    end if;
    select array_agg(row(d.ord, d.namespace, i.id, d.key, d.name, d.payload, d.dedup_key, d.inbox_max,
            d.inbox_bytes_max, d.trace)::dormouse.delivery order by d.ord),
        bool_or(i.lane is not null or i.key_scope is not null)
    into v_batch, v_special
    from json_populate_recordset(null::dormouse.delivery, p_batch) d
    left join dormouse.instances i
        on i.id = any (array[coalesce(d.id, dormouse.find_key(d.namespace, d.key))]) and i.namespace = d.namespace;
    if v_special then
        select d.* into v_any from dormouse.deliver_any(p_batch) d;
        results := v_any.results;
        ids := v_any.ids;
        wokes := v_any.wokes;
        effects := v_any.effects;
        return;
    end if;
    perform from dormouse.instances i
    where i.id = any (array(select d.id from unnest(v_batch) d)) order by i.id for no key update;
    v_now := dormouse.now();
    v_place := dormouse.feed_place();
    with first as (
        select distinct on (d.id) d.* from unnest(v_batch) d order by d.id, d.ord
    ), arrived as materialized (
        select f.ord, f.id as instance, nextval('dormouse.signal_ids') as id, f.name, f.payload::json as payload,
            f.dedup_key, f.trace
        from first f cross join lateral (
            select i.status, i.awaits, i.inbox, i.inbox_bytes from dormouse.instances i where i.id = f.id offset 0
        ) i
        where i.status = 'awaiting_signal' and f.name = any (i.awaits) and dormouse.has_room(
            i.inbox + 1, i.inbox_bytes + octet_length(f.payload), f.inbox_max, f.inbox_bytes_max
        ) and (
            select true from dormouse.signals s where s.instance = f.id and s.dedup_key = f.dedup_key limit 1
        ) is null
    ), stored as (
        insert into dormouse.signals (instance, id, name, dedup_key, at, payload, trace)
        select a.instance, a.id, a.name, a.dedup_key, v_now, a.payload, a.trace from arrived a
    ), saved as (
        update dormouse.instances i set
            status = 'runnable', seq = i.seq + 1, runnable_at = v_now, wake_at = null, wake = 'signal',
            inbox = i.inbox + 1, inbox_bytes = i.inbox_bytes + octet_length(a.payload::text), changed_at = v_now
        from arrived a where i.id = any (array[a.instance])
        returning i.id, i.seq, i.namespace, i.machine, i.version, i.step, i.queue, i.paused, i.keeps_history,
            a.ord, a.id as signal, a.name, a.payload, a.dedup_key
    ), recorded as (
        insert into dormouse.history (instance, seq, kind, version, step, at, data, id)
        select s.id, s.seq, 'signal.received', s.version, s.step, v_now,
            dormouse.signal_data(s.signal, s.name, s.payload, s.dedup_key), dormouse.event_id(v_place)
        from saved s where s.keeps_history
    ), counted as (
        insert into dormouse.counts (namespace, queue, machine, version, step, status, count)
        select s.namespace, s.queue, s.machine, s.version, s.step, moved.status, moved.by * count(*)
        from saved s cross join (values ('awaiting_signal', -1), ('runnable', 1)) moved (status, by)
        group by s.namespace, s.queue, s.machine, s.version, s.step, moved.status, moved.by
    )
    select array_agg(s.ord order by s.ord), array_agg(s.signal order by s.ord),
        array_agg(distinct s.queue) filter (where not s.paused)
    into v_woken, ids, v_queues from saved s;
    effects := row(v_queues, null, null, null)::dormouse.effects;
    results := array_fill('accepted'::text, array[coalesce(cardinality(v_woken), 0)]);
    wokes := array_fill(true, array[cardinality(results)]);
    if cardinality(results) = cardinality(v_batch) then
        return;
    end if;
    -- The others, numbered anew, and put in between.
    select array_agg(d.ord order by d.ord), json_agg(json_build_object(
            'ord', d.place, 'namespace', d.namespace, 'id', case when d.key is null then d.id end, 'key', d.key,
            'name', d.name, 'payload', d.payload, 'dedup_key', d.dedup_key, 'inbox_max', d.inbox_max,
            'inbox_bytes_max', d.inbox_bytes_max, 'trace', d.trace
        ) order by d.ord)
    into v_rest, v_sent
    from (
        select d.*, row_number() over (order by d.ord) as place from unnest(v_batch) d
        where d.ord <> all (coalesce(v_woken, '{}'))
    ) d;
    select d.* into v_any from dormouse.deliver_any(v_sent) d;
    select array_agg(a.result order by a.ord), array_agg(a.id order by a.ord), array_agg(a.woke order by a.ord)
    into results, ids, wokes
    from (
        select * from unnest(v_woken, results, ids, wokes) w (ord, result, id, woke)
        union all
        select * from unnest(v_rest, v_any.results, v_any.ids, v_any.wokes) r (ord, result, id, woke)
    ) a;
    effects := dormouse.merge(effects, v_any.effects);
end
$$;

-- Delivers any signals.
create or replace function dormouse.deliver_any(
    p_batch json,
    out results text[], out ids bigint[], out wokes boolean[], out effects dormouse.effects
) language plpgsql as $$
declare
    v_now timestamptz;
    v_batch dormouse.delivery[];
    v_targets bigint[];
    v_found bigint[];
    v_changes dormouse.change[];
    v_woken integer[];
    v_queues text[];
begin
    select array_agg(d order by d.ord) into v_batch
    from json_populate_recordset(null::dormouse.delivery, p_batch) d;
    loop
        v_found := array(
            select dormouse.find(d.namespace, d.id, d.key) from unnest(v_batch) d order by d.ord
        );
        -- A key may have passed on while we waited for its holder's lock.
        exit when v_found = v_targets or (v_targets is not null and not exists (
            select from unnest(v_batch) d where d.id is null
        ));
        if v_targets is null then
            perform dormouse.lock(array(select distinct id from unnest(v_found) id where id is not null), '{}');
        else
            perform dormouse.lock_more(array(select distinct id from unnest(v_found) id where id is not null), '{}');
        end if;
        v_targets := v_found;
    end loop;
    v_now := dormouse.now();
    -- Under the instances' locks nobody else adds to their inboxes: what is a duplicate can be told before.
    results := array(
        select case
            when i.id is null or i.namespace <> d.namespace or i.status in ('done', 'failed', 'cancelled')
                then 'no_target'
            when d.dedup_key is not null and (
                row_number() over (partition by i.id, d.dedup_key order by d.ord) > 1
                or (
                    select true from dormouse.signals s where s.instance = i.id and s.dedup_key = d.dedup_key limit 1
                )
            ) then 'duplicate'
            else 'accepted'
        end
        from unnest(v_batch) d left join dormouse.instances i on i.id = any (array[v_targets[d.ord]])
        order by d.ord
    );
    results := dormouse.refuse_overfull(v_batch, v_targets, results);
    ids := array(select nextval('dormouse.signal_ids') from generate_series(1, cardinality(v_batch)));
    with arrived as (
        select d.ord, ids[d.ord] as signal, octet_length(d.payload) as bytes, d.name, d.payload::json as payload, d.dedup_key, d.trace, i.id, i.inbox,
            i as head, i.status = 'awaiting_signal' and d.name = any (i.awaits) as matches
        from unnest(v_batch) d join dormouse.instances i on i.id = any (array[v_targets[d.ord]])
        where results[d.ord] = 'accepted'
    ), counted as (
        select a.*, count(*) over (partition by a.id)::integer as arrivals,
            sum(a.bytes) over (partition by a.id)::bigint as arrived_bytes,
            row_number() over (partition by a.id order by a.ord) as first,
            bool_or(a.matches) over (partition by a.id) as wakes,
            row_number() over (partition by a.id, a.matches order by a.ord) as place
        from arrived a
    ), stored as (
        insert into dormouse.signals (instance, id, name, dedup_key, at, payload, trace)
        select a.id, a.signal, a.name, a.dedup_key, v_now, a.payload, a.trace from arrived a order by a.ord
    ), kept as (
        -- That of one that wakes is counted when that is applied, below.
        update dormouse.instances i set inbox_bytes = i.inbox_bytes + c.arrived_bytes,
            inbox = case when c.wakes then i.inbox else i.inbox + c.arrivals end
        from counted c where i.id = any (array[c.id]) and c.first = 1
    )
    select array_agg(dormouse.changed(
            c.head, 'runnable', p_runnable_at => v_now, p_wake => 'signal', p_inbox => c.inbox + c.arrivals,
            p_kind => 'signal.received', p_data => dormouse.signal_data(c.signal, c.name, c.payload, c.dedup_key)
        )), array_agg(c.ord)
    into v_changes, v_woken
    from counted c where c.matches and c.place = 1;
    -- A claim passes over a row that can run and is locked here: it is told to look again.
    select array_agg(distinct i.queue) filter (
        where i.status = 'runnable' and not i.blocked and not i.paused
    ) into v_queues
    from unnest(v_targets) target (id) join dormouse.instances i on i.id = any (array[target.id]);
    effects := row(v_queues, null, null, null)::dormouse.effects;
    if v_changes is not null then
        effects := dormouse.merge(effects, dormouse.apply(v_changes, v_now));
    end if;
    wokes := array(
        select coalesce(place = any (v_woken), false) from generate_subscripts(results, 1) place order by place
    );
end
$$;

-- Delivers the signals of those calls whose instances can all be had at once; the others are `busy`, and nothing of
-- them is done.
create or replace function dormouse.deliver_what_can_be(
    p_batch json, p_wait_ms integer,
    out results text[], out ids bigint[], out wokes boolean[], out effects dormouse.effects
) language plpgsql as $$
declare
    v_calls integer[];
    v_targets bigint[];
    v_locked bigint[];
    v_held integer[];
    v_free integer[];
    v_sent json;
    v_delivered record;
begin
    perform set_config('lock_timeout', p_wait_ms || 'ms', true);
    select array_agg(d.call order by d.ord), array_agg(i.id order by d.ord) into v_calls, v_targets
    from json_to_recordset(p_batch) d (ord integer, call integer, namespace text, id bigint, key text)
    left join dormouse.instances i
        on i.id = any (array[coalesce(d.id, dormouse.find_key(d.namespace, d.key))]) and i.namespace = d.namespace;
    v_locked := dormouse.lock(array(select distinct id from unnest(v_targets) id where id is not null), '{}', false);
    v_held := array(
        select call from unnest(v_calls, v_targets) d (call, target)
        where target is not null and target <> all (v_locked)
    );
    results := array_fill('busy'::text, array[cardinality(v_calls)]);
    ids := array_fill(null::bigint, array[cardinality(v_calls)]);
    wokes := array_fill(false, array[cardinality(v_calls)]);
    select array_agg(d.ord order by d.ord), json_agg(json_build_object(
            'ord', d.place, 'namespace', d.namespace, 'id', d.id, 'key', d.key, 'name', d.name, 'payload', d.payload,
            'dedup_key', d.dedup_key, 'inbox_max', d.inbox_max, 'inbox_bytes_max', d.inbox_bytes_max, 'trace', d.trace
        ) order by d.ord)
    into v_free, v_sent
    from (
        select d.*, row_number() over (order by d.ord) as place
        from json_populate_recordset(null::dormouse.delivery, p_batch) d where v_calls[d.ord] <> all (v_held)
    ) d;
    if v_free is null then
        return;
    end if;
    select d.* into v_delivered from dormouse.deliver(v_sent) d;
    effects := v_delivered.effects;
    for place in 1..cardinality(v_free) loop
        results[v_free[place]] := v_delivered.results[place];
        ids[v_free[place]] := v_delivered.ids[place];
        wokes[v_free[place]] := v_delivered.wokes[place];
    end loop;
end
$$;

-- Whether an inbox may hold this many signals of this many bytes. The bounds of SQL alone are those of `Limits`.
create or replace function dormouse.has_room(
    p_signals integer, p_bytes bigint, p_signals_max integer, p_bytes_max bigint
) returns boolean language sql immutable as $$
    select p_signals <= coalesce(p_signals_max, 10000) and p_bytes <= coalesce(p_bytes_max, 16777216)
$$;

-- What becomes of signals once those for which there is no room are refused. Each is looked at as if it came alone: a
-- smaller one behind one that was refused may fit, and a second of one dedup key is no duplicate of one that was refused.
create or replace function dormouse.refuse_overfull(
    p_batch dormouse.delivery[], p_targets bigint[], p_results text[]
) returns text[] language plpgsql stable as $$
declare
    v_results text[] := p_results;
    v_instance bigint;
    v_inbox integer;
    v_bytes bigint;
    v_refused text[];
    v_one record;
begin
    if not exists (
        select from (
            select i.inbox + count(*)::integer as inbox, i.inbox_bytes + sum(octet_length(d.payload)) as bytes,
                min(d.inbox_max) as inbox_max, min(d.inbox_bytes_max) as inbox_bytes_max
            from unnest(p_batch) d join dormouse.instances i on i.id = any (array[p_targets[d.ord]])
            where p_results[d.ord] = 'accepted' group by i.id, i.inbox, i.inbox_bytes
        ) full_of where not dormouse.has_room(inbox, bytes, inbox_max, inbox_bytes_max)
    ) then
        return p_results;
    end if;
    for v_one in
        select d.ord, d.dedup_key, octet_length(d.payload) as bytes, d.inbox_max, d.inbox_bytes_max, i.id, i.inbox,
            i.inbox_bytes, p_results[d.ord] as result,
            d.dedup_key is not null and (
                select true from dormouse.signals s where s.instance = i.id and s.dedup_key = d.dedup_key limit 1
            ) is null as is_new
        from unnest(p_batch) d join dormouse.instances i on i.id = any (array[p_targets[d.ord]])
        where p_results[d.ord] in ('accepted', 'duplicate') order by i.id, d.ord
    loop
        if v_instance is distinct from v_one.id then
            v_instance := v_one.id;
            v_inbox := v_one.inbox;
            v_bytes := v_one.inbox_bytes;
            v_refused := '{}';
        end if;
        if v_one.result = 'duplicate' and not (v_one.is_new and v_one.dedup_key = any (v_refused)) then
            continue;
        end if;
        if dormouse.has_room(v_inbox + 1, v_bytes + v_one.bytes, v_one.inbox_max, v_one.inbox_bytes_max) then
            v_inbox := v_inbox + 1;
            v_bytes := v_bytes + v_one.bytes;
            v_results[v_one.ord] := 'accepted';
            v_refused := array_remove(v_refused, v_one.dedup_key);
        else
            v_results[v_one.ord] := 'inbox_full';
            v_refused := v_refused || v_one.dedup_key;
        end if;
    end loop;
    return v_results;
end
$$;

-- A signal in an event's data.
create or replace function dormouse.signal_data(p_id bigint, p_name text, p_payload json, p_dedup_key text)
returns json language sql stable as $$
    select case
        when p_dedup_key is null then json_build_object('id', p_id, 'name', p_name, 'payload', p_payload)
        else json_build_object('id', p_id, 'name', p_name, 'payload', p_payload, 'dedup_key', p_dedup_key)
    end
$$;

-- What waits for an instance, in order of arrival.
create or replace function dormouse.inbox(p_instance bigint) returns json
language plpgsql stable as $$
begin
    return (
        select json_agg(json_build_object('id', id, 'name', name, 'payload', payload::text, 'dedup_key', dedup_key,
            'at', at, 'trace', trace) order by id)
        from dormouse.signals where instance = p_instance and not consumed
    );
end
$$;
