-- Delivers signals: takes the instance's lock whatever its status, stores the row, and wakes whoever is parked
-- on its name. Parking looks into the inbox under the same lock, so no interleaving loses a wake-up.
create or replace function dormouse.deliver(
    p_batch json, out results text[], out ids bigint[], out wokes boolean[], out effects dormouse.effects,
    out ords integer[]
) language plpgsql as $$
declare
    v_now timestamptz;
    v_batch dormouse.delivery[];
    v_targets bigint[];
    v_found bigint[];
    v_signals bigint[];
    v_stored bigint[];
    v_changes dormouse.change[];
    v_woken bigint[];
begin
    select array_agg(d order by d.ord) into v_batch
    from json_populate_recordset(null::dormouse.delivery, p_batch) d;
    loop
        v_found := array(
            select coalesce(d.id, dormouse.find_key(d.namespace, d.key)) from unnest(v_batch) d order by d.ord
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
    v_signals := array(select nextval('dormouse.signal_ids') from generate_series(1, cardinality(v_batch)));
    with sent as (
        select d.*, v_targets[d.ord] as target, v_signals[d.ord] as signal from unnest(v_batch) d
    ), stored as (
        insert into dormouse.signals (instance, id, name, dedup_key, at, payload)
        select s.target, s.signal, s.name, s.dedup_key, v_now, s.payload::json
        from sent s join dormouse.instances i on i.id = s.target
        where i.status not in ('done', 'failed', 'cancelled')
        order by s.ord
        on conflict do nothing
        returning id
    )
    select array_agg(id) into v_stored from stored;
    with arrived as (
        select d.*, v_targets[d.ord] as target, v_signals[d.ord] as signal from unnest(v_batch) d
        where v_signals[d.ord] = any (v_stored)
    ), counted as (
        select target, count(*)::integer as arrivals from arrived group by target
    ), matched as (
        select distinct on (a.target) a.* from arrived a join dormouse.instances i on i.id = a.target
        where i.status = 'awaiting_signal' and a.name = any (i.awaits)
        order by a.target, a.ord
    ), kept as (
        update dormouse.instances i set inbox = i.inbox + c.arrivals from counted c
        where i.id = c.target and not exists (select from matched m where m.target = c.target)
    )
    select array_agg(row(
            i.id, 'runnable', i.version, i.step, null, i.attempt, v_now, null, null, 'signal', i.awaits,
            i.inbox + c.arrivals, i.barrier, i.round, i.paused, i.last_error, null,
            'signal.received', dormouse.signal_data(m.signal, m.name, m.payload::json, m.dedup_key),
            null, null
        )::dormouse.change), array_agg(m.signal)
    into v_changes, v_woken
    from matched m join counted c using (target) join dormouse.instances i on i.id = m.target;
    if v_changes is not null then
        effects := dormouse.apply(v_changes, v_now);
    end if;
    select array_agg(d.ord order by d.ord), array_agg(d.signal order by d.ord),
        array_agg(coalesce(d.signal = any (v_woken), false) order by d.ord),
        array_agg(case
            when d.signal = any (v_stored) then 'accepted'
            when i.status is null or i.status in ('done', 'failed', 'cancelled') then 'no_target'
            else 'duplicate'
        end order by d.ord)
    into ords, ids, wokes, results
    from (select ord, v_targets[ord] as target, v_signals[ord] as signal from unnest(v_batch)) d
    left join dormouse.instances i on i.id = d.target;
end
$$;

-- A signal in an event's data.
create or replace function dormouse.signal_data(p_id bigint, p_name text, p_payload json, p_dedup_key text)
returns json language sql immutable as $$
    select case
        when p_dedup_key is null then json_build_object('id', p_id, 'name', p_name, 'payload', p_payload)
        else json_build_object('id', p_id, 'name', p_name, 'payload', p_payload, 'dedup_key', p_dedup_key)
    end
$$;

-- What waits for an instance, in order of arrival.
create or replace function dormouse.inbox(p_instance bigint) returns json
language sql stable as $$
    select json_agg(json_build_object('id', id, 'name', name, 'payload', payload::text, 'dedup_key', dedup_key,
        'at', at) order by id)
    from dormouse.signals where instance = p_instance and not consumed
$$;
