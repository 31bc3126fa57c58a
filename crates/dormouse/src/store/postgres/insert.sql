-- Inserts instances, each with its signals, alone or as one parent's children, and says for each what became
-- of it: its id, or who holds its key.
create or replace function dormouse.insert(
    p_batch json, p_parent bigint default null, p_round integer default null, p_cascade boolean default false,
    out ids bigint[], out holders bigint[], out signals json, out effects dormouse.effects
) language plpgsql as $$
declare
    v_now constant timestamptz := dormouse.now();
    v_batch dormouse.arrival[];
    v_forks boolean;
    v_left integer[]; -- places in the batch that are still to be inserted; null: all
    v_new bigint[];
    v_holders bigint[];
    v_queues text[];
    v_wake_at timestamptz;
    v_namespaces text[];
    v_lanes text[];
    v_delivered record;
begin
    select array_agg(a order by a.ord), bool_or(a.forked is not null),
        array_agg(a.namespace) filter (where a.lane is not null),
        array_agg(a.lane) filter (where a.lane is not null)
    into v_batch, v_forks, v_namespaces, v_lanes
    from json_populate_recordset(null::dormouse.arrival, p_batch) a;
    -- Ids in the order they came, whatever order the keys are taken in.
    ids := array(select nextval('dormouse.instance_ids') from generate_series(1, cardinality(v_batch)));
    holders := array_fill(null::bigint, array[cardinality(v_batch)]);
    if v_lanes is not null then
        perform dormouse.lock_lanes(array(
            select dormouse.lane_slot(namespace, lane) from unnest(v_namespaces, v_lanes) l (namespace, lane)
        ));
    end if;
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
                changed_at, state
            )
            select id, namespace, machine, version,
                case
                    when parks then 'awaiting_signal' when starts_at > v_now then 'scheduled' else 'runnable'
                end,
                step, case when parks then 2 else 1 end, queue, priority, v_now,
                case when parks then until when starts_at > v_now then starts_at end,
                awaits, p_parent, p_round, p_cascade, lane,
                lane is not null and not parks and not coalesce(starts_at > v_now, false),
                keeps, key, key_scope, v_now, v_now, state::json
            from fresh
            -- Two batches with the same keys in other orders must not wait for each other.
            order by namespace, key, ord
            on conflict do nothing
            returning id, version, step, state, queue, status, blocked, wake_at, awaits, keeps_history
        ), recorded as (
            insert into dormouse.history (instance, seq, kind, version, step, at, data, state)
            select i.id, event.seq, event.kind, i.version, i.step, v_now, event.data, event.state
            from inserted i cross join lateral (values
                (1, 'created', case when v_forks then (
                    select f.forked from unnest(v_batch) f where ids[f.ord] = i.id
                ) end, i.state),
                (2, case when i.awaits is not null then 'signal.waiting' end,
                    json_build_object('names', i.awaits, 'until', dormouse.told(i.wake_at)), null)
            ) event (seq, kind, data, state)
            where i.keeps_history and event.kind is not null
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
    if exists (select from unnest(v_batch) a where a.signals is not null) then
        select d.results, d.ids, d.wokes, d.effects into v_delivered from dormouse.deliver((
            select json_agg(json_build_object(
                'ord', ord, 'id', target, 'name', signal ->> 'name', 'payload', signal ->> 'payload',
                'dedup_key', signal ->> 'dedup_key') order by ord)
            from (
                select row_number() over (order by a.ord, s.place) as ord,
                    coalesce(ids[a.ord], holders[a.ord]) as target, s.signal
                from unnest(v_batch) a cross join lateral
                    json_array_elements(a.signals) with ordinality s (signal, place)
                where a.signals is not null
            ) sent
        )) d;
        effects := dormouse.merge(effects, v_delivered.effects);
        signals := json_build_object(
            'results', v_delivered.results, 'ids', v_delivered.ids, 'wokes', v_delivered.wokes
        );
    end if;
    if v_lanes is not null then
        effects.queues := effects.queues || dormouse.settle_lanes(v_namespaces, v_lanes);
    end if;
end
$$;
