-- Inserts instances, each with its signals, and says for each what became of it: its id, or who holds its key.
create or replace function dormouse.insert(
    p_batch json, p_wait_ms integer default null,
    out ids bigint[], out holders bigint[], out signals json, out effects dormouse.effects
) language plpgsql as $$
declare
    v_inserted record;
begin
    -- In a caller's own transaction, how long to wait is the caller's choice.
    if p_wait_ms is not null then
        perform set_config('lock_timeout', p_wait_ms || 'ms', true);
    end if;
    select * into v_inserted from dormouse.insert_all(array(
        select a from json_populate_recordset(null::dormouse.arrival, p_batch) a order by a.ord
    ));
    ids := v_inserted.ids;
    holders := v_inserted.holders;
    signals := v_inserted.signals;
    effects := v_inserted.effects;
end
$$;

-- The same, with some of them perhaps the children of parents that the caller has locked: those of the next round.
create or replace function dormouse.insert_all(
    p_batch dormouse.arrival[],
    out ids bigint[], out holders bigint[], out signals json, out effects dormouse.effects
) language plpgsql as $$
declare
    v_now constant timestamptz := dormouse.now();
    v_place constant bigint := dormouse.feed_place();
    v_batch constant dormouse.arrival[] := p_batch;
    v_forks boolean;
    v_tagged boolean;
    v_indexed constant boolean := exists (select from dormouse.indexes);
    v_left integer[]; -- places in the batch that are still to be inserted; null: all
    v_new bigint[];
    v_holders bigint[];
    v_queues text[];
    v_wake_at timestamptz;
    v_namespaces text[];
    v_lanes text[];
    v_numbers integer[];
    v_signalled bigint[];
    v_delivered record;
    v_keyed record;
    v_received dormouse.effects;
begin
    select bool_or(a.forked is not null), bool_or(a.tags is not null),
        array_agg(a.namespace) filter (where a.lane is not null),
        array_agg(a.lane) filter (where a.lane is not null),
        array_agg(dormouse.lane_number(a.namespace, a.lane)) filter (where a.lane is not null),
        array_agg(dormouse.key_holder(a.namespace, a.key)) filter (where a.key is not null and a.signals is not null)
    into v_forks, v_tagged, v_namespaces, v_lanes, v_numbers, v_signalled
    from unnest(v_batch) a;
    -- Ids in the order they came, whatever order the keys are taken in.
    ids := array(select nextval('dormouse.instance_ids') from generate_series(1, cardinality(v_batch)));
    holders := array_fill(null::bigint, array[cardinality(v_batch)]);
    -- Whoever holds a key gets the signals of those that it keeps out.
    v_signalled := array_remove(v_signalled, null);
    if v_numbers is not null or cardinality(v_signalled) > 0 then
        perform dormouse.lock(coalesce(v_signalled, '{}'), '{}', true, v_numbers);
    end if;
    -- Whoever keeps a signal for a key waits for those that insert it: also for those that do not count as holders yet.
    perform dormouse.lock_key(a.namespace, a.key) from (
        select s.namespace, s.key from unnest(v_batch) s
        where s.key is not null and s.key_scope <> 'always' order by s.namespace collate "C", s.key collate "C" offset 0
    ) a;
    -- A key whose holder ends between the two statements below is free again: whoever was refused tries again.
    loop
        with fresh as (
            select a.*, ids[a.ord] as id, dormouse.moment(a.at_us, a.in_us, v_now) as starts_at,
                dormouse.moment(a.await_at_us, a.await_in_us, v_now) as until,
                a.awaits is not null as parks
            from unnest(v_batch) a where v_left is null or a.ord = any (v_left)
        ), inserted as (
            insert into dormouse.instances (
                id, namespace, machine, version, status, step, seq, queue, priority, runnable_at, wake_at, awaits,
                parent, parent_round, cascade, lane, blocked, keeps_history, key, key_scope, created_at,
                changed_at, state, parent_index, tags, share, cost, depth, indexed, trace
            )
            select id, namespace, machine, version,
                case
                    when parks then 'awaiting_signal' when starts_at > v_now then 'scheduled' else 'runnable'
                end,
                step, case when parks then 2 else 1 end, queue, priority, v_now,
                case when parks then until when starts_at > v_now then starts_at end,
                awaits, parent,
                case when parent is not null then (select p.round + 1 from dormouse.instances p where p.id = fresh.parent) end,
                coalesce(cascade, false), lane,
                lane is not null and not parks and not coalesce(starts_at > v_now, false),
                keeps, key, key_scope, v_now, v_now, state::json, parent_index, tags, share, coalesce(cost, 1), case
                    when parent is null then coalesce(depth, 0)
                    else (select p.depth from dormouse.instances p where p.id = fresh.parent)
                end,
                case when v_indexed then exists (select from dormouse.indexes x where x.machine = fresh.machine) end, trace
            from fresh
            -- Two batches with the same keys in other orders must not wait for each other.
            order by namespace, key, ord
            on conflict do nothing
            returning id, namespace, machine, version, step, state, queue, status, blocked, wake_at, awaits,
                keeps_history
        ), recorded as (
            insert into dormouse.history (instance, seq, kind, version, step, at, data, state, id)
            select i.id, event.seq, event.kind, i.version, i.step, v_now, event.data, event.state,
                dormouse.event_id(v_place)
            from inserted i cross join lateral (values
                (1, 'created', case when v_forks then (
                    select f.forked from unnest(v_batch) f where ids[f.ord] = i.id
                ) end, i.state),
                (2, case when i.awaits is not null then 'signal.waiting' end,
                    json_build_object('names', i.awaits, 'until', dormouse.told(i.wake_at)), null)
            ) event (seq, kind, data, state)
            where i.keeps_history and event.kind is not null
        ), counted as (
            insert into dormouse.counts (namespace, queue, machine, version, step, status, count)
            select namespace, queue, machine, version, step, status, count(*) from inserted
            group by namespace, queue, machine, version, step, status
        )
        select array_agg(distinct queue) filter (where status = 'runnable' and not blocked), min(wake_at),
            array_agg(id)
        into v_queues, v_wake_at, v_new from inserted;
        effects := dormouse.merge(effects, row(v_queues, v_wake_at, null, null)::dormouse.effects);
        exit when cardinality(v_new) = cardinality(coalesce(v_left, array(select ord from unnest(v_batch))));
        select array_agg(refused.ord) filter (where refused.is_so and refused.holder is null),
            array_agg(coalesce(refused.holder, holders[refused.ord]) order by refused.ord)
        into v_left, v_holders
        from (
            select a.ord, told.is_so, case when told.is_so then dormouse.key_holder(a.namespace, a.key) end as holder
            from unnest(v_batch) a cross join lateral (
                select (v_left is null or a.ord = any (v_left)) and not ids[a.ord] = any (coalesce(v_new, '{}'))
            ) told (is_so)
        ) refused;
        holders := v_holders;
        exit when v_left is null;
    end loop;
    ids := array(
        select case when holders[place] is null then ids[place] end from generate_subscripts(ids, 1) place
        order by place
    );
    if v_tagged then
        insert into dormouse.tags (namespace, tag, instance)
        select a.namespace, tag, ids[a.ord] from unnest(v_batch) a cross join lateral unnest(a.tags) tag
        where ids[a.ord] is not null;
    end if;
    select array_agg(a.namespace) as namespaces, array_agg(a.key) as keys, array_agg(ids[a.ord]) as ids into v_keyed
    from unnest(v_batch) a where a.key is not null and ids[a.ord] is not null;
    if v_keyed.ids is not null then
        v_received := dormouse.receive_kept(v_keyed.namespaces, v_keyed.keys, v_keyed.ids);
        effects := dormouse.merge(effects, v_received);
    end if;
    if exists (select from unnest(v_batch) a where a.signals is not null) then
        perform dormouse.lock_more(array(
            select distinct holders[a.ord] from unnest(v_batch) a
            where a.signals is not null and holders[a.ord] is not null
        ), '{}');
        select d.results, d.ids, d.wokes, d.effects into v_delivered from dormouse.deliver((
            select json_agg(json_build_object(
                'ord', ord, 'namespace', namespace, 'id', target, 'name', signal ->> 'name', 'payload', signal ->> 'payload',
                'dedup_key', signal ->> 'dedup_key', 'trace', signal ->> 'trace', 'inbox_max', inbox_max, 'inbox_bytes_max', inbox_bytes_max)
                order by ord)
            from (
                -- What was kept for a new instance takes no room from what comes with it.
                select row_number() over (order by a.ord, s.place) as ord, a.namespace,
                    least(coalesce(a.inbox_max, 10000) + received.inbox, 2147483647) as inbox_max,
                    least(coalesce(a.inbox_bytes_max, 16777216)::numeric + received.inbox_bytes, 9223372036854775807)
                        as inbox_bytes_max,
                    coalesce(ids[a.ord], holders[a.ord]) as target, s.signal
                from unnest(v_batch) a cross join lateral
                    json_array_elements(a.signals) with ordinality s (signal, place) cross join lateral (
                        select coalesce(max(i.inbox), 0)::bigint as inbox, coalesce(max(i.inbox_bytes), 0) as inbox_bytes
                        from dormouse.instances i where i.id = any (array[ids[a.ord]])
                    ) received
                where a.signals is not null
            ) sent
        )) d;
        effects := dormouse.merge(effects, v_delivered.effects);
        signals := json_build_object(
            'results', v_delivered.results, 'ids', v_delivered.ids, 'wokes', v_delivered.wokes
        );
    end if;
    if v_lanes is not null then
        effects := dormouse.merge(effects, dormouse.settle_lanes(v_namespaces, v_lanes));
    end if;
end
$$;
