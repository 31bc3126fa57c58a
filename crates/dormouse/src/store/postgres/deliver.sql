-- Delivers signals: takes the instance's lock whatever its status, stores the row, and wakes whoever is parked
-- on its name. Parking looks into the inbox under the same lock, so no interleaving loses a wake-up.
create or replace function dormouse.deliver(
    p_batch json, p_shared boolean default false,
    out results text[], out ids bigint[], out wokes boolean[], out effects dormouse.effects
) language plpgsql as $$
declare
    v_now timestamptz;
    v_batch dormouse.delivery[];
    v_targets bigint[];
    v_found bigint[];
    v_changes dormouse.change[];
    v_woken integer[];
begin
    -- What several callers share must not keep all of them waiting for one's lock.
    if p_shared then
        perform set_config('lock_timeout', '250ms', true);
    end if;
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
    -- Under the instances' locks nobody else adds to their inboxes: what is a duplicate can be told before.
    results := array(
        select case
            when i.id is null or i.namespace <> d.namespace or i.status in ('done', 'failed', 'cancelled')
                then 'no_target'
            when d.dedup_key is not null and (
                row_number() over (partition by i.id, d.dedup_key order by d.ord) > 1
                or exists (select from dormouse.signals s where s.instance = i.id and s.dedup_key = d.dedup_key)
            ) then 'duplicate'
            else 'accepted'
        end
        from unnest(v_batch) d left join dormouse.instances i on i.id = v_targets[d.ord]
        order by d.ord
    );
    ids := array(select nextval('dormouse.signal_ids') from generate_series(1, cardinality(v_batch)));
    with arrived as (
        select d.ord, ids[d.ord] as signal, d.name, d.payload::json as payload, d.dedup_key, i.id, i.version, i.step,
            i.attempt, i.awaits, i.inbox, i.barrier, i.round, i.paused, i.last_error,
            i.status = 'awaiting_signal' and d.name = any (i.awaits) as matches
        from unnest(v_batch) d join dormouse.instances i on i.id = v_targets[d.ord]
        where results[d.ord] = 'accepted'
    ), counted as (
        select a.*, count(*) over (partition by a.id)::integer as arrivals,
            bool_or(a.matches) over (partition by a.id) as wakes,
            row_number() over (partition by a.id, a.matches order by a.ord) as place
        from arrived a
    ), stored as (
        insert into dormouse.signals (instance, id, name, dedup_key, at, payload)
        select a.id, a.signal, a.name, a.dedup_key, v_now, a.payload from arrived a order by a.ord
    ), kept as (
        update dormouse.instances i set inbox = i.inbox + c.arrivals from counted c
        where i.id = c.id and not c.wakes and c.place = 1
    )
    select array_agg(row(
            c.id, 'runnable', c.version, c.step, null, c.attempt, v_now, null, null, 'signal', c.awaits,
            c.inbox + c.arrivals, c.barrier, c.round, c.paused, c.last_error, null,
            'signal.received', dormouse.signal_data(c.signal, c.name, c.payload, c.dedup_key), null, null
        )::dormouse.change), array_agg(c.ord)
    into v_changes, v_woken
    from counted c where c.matches and c.place = 1;
    if v_changes is not null then
        effects := dormouse.apply(v_changes, v_now);
    end if;
    wokes := array(
        select coalesce(place = any (v_woken), false) from generate_subscripts(results, 1) place order by place
    );
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
            'at', at) order by id)
        from dormouse.signals where instance = p_instance and not consumed
    );
end
$$;
