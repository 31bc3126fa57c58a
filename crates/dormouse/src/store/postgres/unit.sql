-- Units: opened by an outcome, resolved item by item, closed once. A unit is open exactly while its instance is parked
-- on its round, and every caller here holds that instance's lock: so what is read of a unit is final.

-- Opens the units of a batch of outcomes, with their interactions. The answers are by the outcome's place in the batch:
-- the unit, and when the first of its requests is late.
create or replace function dormouse.open_units(
    p_batch dormouse.decided[], p_owned boolean[], p_now timestamptz,
    out ids bigint[], out first_late timestamptz[], out effects dormouse.effects
) language plpgsql as $$
declare
    o dormouse.decided;
    d dormouse.dispatch;
    i dormouse.instances;
    v_asked integer;
    v_in_flight integer;
    v_sends boolean;
    v_deadline timestamptz;
begin
    foreach o in array p_batch loop
        continue when o.unit is null or not p_owned[o.ord];
        d := json_populate_record(null::dormouse.dispatch, o.unit);
        select * into i from dormouse.instances where id = o.id;
        ids[o.ord] := nextval('dormouse.unit_ids');
        v_asked := json_array_length(d.asks);
        d.quorum := case when d.quorum is not null then least(d.quorum, v_asked) end;
        first_late[o.ord] := dormouse.moment(null, d.item_timeout_us, p_now);
        v_deadline := dormouse.moment(o.at_us, o.in_us, p_now);
        v_in_flight := least(coalesce(d.in_flight, v_asked), v_asked);
        v_sends := d.transport <> 'api';
        insert into dormouse.units (id, instance, round, shape, status, transport, on_failure, interactions, quorum,
            in_flight, next_item, item_timeout_us, outputs_max, opened_at, deadline, closed_at)
        values (ids[o.ord], o.id, i.round + 1, d.shape, case when v_asked = 0 then 'completed' else 'open' end,
            d.transport, d.on_failure, v_asked, d.quorum, d.in_flight, v_in_flight, d.item_timeout_us,
            d.outputs_max, p_now, v_deadline,
            case when v_asked = 0 then p_now end);
        insert into dormouse.interactions (id, unit, item, instance, namespace, machine, version, step, transport,
            status, idempotency_key, correlation_id, opened_at, deadline, send_at, request, for_assignee, for_group,
            trace)
        select nextval('dormouse.interaction_ids'), ids[o.ord], a.item, o.id, i.namespace, i.machine, o.version,
            o.step, d.transport, 'pending', a.idempotency_key, a.correlation_id, case when a.flies then p_now end,
            case when a.flies then least(v_deadline, first_late[o.ord]) end, case when a.flies and v_sends then p_now end,
            a.request::json, a.for_assignee, a.for_group, i.trace
        from (
            select ask.ordinality - 1 as item, ask.ordinality <= v_in_flight as flies, ask.request,
                ask.idempotency_key, ask.correlation_id, ask.for_assignee, ask.for_group
            from rows from (json_populate_recordset(null::dormouse.ask, d.asks)) with ordinality ask
            order by ask.ordinality
        ) a;
        if v_sends and v_asked > 0 then
            effects.queues := effects.queues || dormouse.outbox_queue(d.transport);
        end if;
    end loop;
end
$$;

-- The name by which a transport's outbox is poked: one that no queue can have.
create or replace function dormouse.outbox_queue(p_transport text) returns text
language sql immutable parallel safe as $$ select e'outbox\t' || p_transport $$;

create or replace function dormouse.closing_data(p_instance bigint, p_round integer) returns json
language sql stable as $$
    select json_build_object('unit', u.id, 'completed', u.completed, 'failed', u.failed)
    from dormouse.units u where u.instance = p_instance and u.round = p_round
$$;

-- Records what happened to a parked instance without waking it, and says when the clock will.
create or replace function dormouse.tell(
    p_instance bigint, p_kind text, p_data json, p_barrier integer, p_now timestamptz
) returns timestamptz language plpgsql as $$
declare
    i record;
begin
    update dormouse.instances set seq = seq + 1, changed_at = p_now, barrier = coalesce(p_barrier, barrier)
    where id = p_instance returning seq, version, step, keeps_history, wake_at into strict i;
    if i.keeps_history then
        insert into dormouse.history (instance, seq, kind, version, step, at, data, id)
        values (p_instance, i.seq, p_kind, i.version, i.step, p_now, p_data,
            dormouse.event_id(dormouse.feed_place()));
    end if;
    return i.wake_at;
end
$$;

-- Resolves one open item, and then closes the unit or gives the next item its place in flight.
create or replace function dormouse.resolve(
    p_interaction bigint, p_status text, p_answered boolean, p_by text, p_error text, p_output text,
    p_now timestamptz, out closed boolean, out wake_at timestamptz, out effects dormouse.effects
) language plpgsql as $$
declare
    n record;
    u dormouse.units;
    v_verdict text;
begin
    update dormouse.interactions set status = p_status, resolved_at = p_now, answered = p_answered, answered_by = p_by,
        error = p_error, output = p_output::json, send_at = null
    where id = p_interaction and status in ('pending', 'dispatched') returning unit, item into strict n;
    update dormouse.units set completed = completed + (p_status = 'completed')::integer,
        failed = failed + (p_status <> 'completed')::integer
    where id = n.unit returning * into strict u;
    v_verdict := case
        when p_status <> 'completed' and u.on_failure = 'fail' then 'failed'
        when u.completed >= u.quorum then 'completed'
        when u.interactions - u.failed < u.quorum then 'failed'
        when u.quorum is null and u.completed + u.failed = u.interactions then 'completed'
    end;
    wake_at := dormouse.tell(u.instance, 'interaction.' || p_status,
        case
            when p_error is null then json_build_object('unit', u.id, 'interaction', p_interaction, 'item', n.item)
            else json_build_object('unit', u.id, 'interaction', p_interaction, 'item', n.item, 'error', p_error)
        end,
        case
            when v_verdict is not null then 0
            when u.quorum is not null then u.quorum - u.completed
            else u.interactions - u.completed - u.failed
        end, p_now);
    closed := v_verdict is not null;
    effects.queues := dormouse.freed(u.transport);
    if closed then
        wake_at := null;
        effects := dormouse.merge(effects, dormouse.close_unit(u.id, v_verdict, p_now));
    elsif u.next_item < u.interactions then
        update dormouse.interactions set opened_at = p_now,
            deadline = least(u.deadline, dormouse.moment(null, u.item_timeout_us, p_now)),
            send_at = case when u.transport <> 'api' then p_now end
        where unit = u.id and item = u.next_item;
        update dormouse.units set next_item = next_item + 1 where id = u.id;
        if u.transport <> 'api' then
            effects.queues := effects.queues || dormouse.outbox_queue(u.transport);
        end if;
    end if;
end
$$;

-- Closes a unit and wakes its instance; what is still open in it is let go.
create or replace function dormouse.close_unit(p_unit bigint, p_status text, p_now timestamptz)
returns dormouse.effects language plpgsql as $$
declare
    v_effects dormouse.effects;
begin
    v_effects.queues := dormouse.let_go(array[p_unit], p_status, p_now);
    return dormouse.merge(v_effects, dormouse.apply(array(
        select dormouse.changed(
            i, 'runnable', p_runnable_at => p_now, p_barrier => 0,
            p_wake => case when p_status = 'timed_out' then 'timeout' else 'unit' end,
            p_kind => 'unit.' || p_status, p_data => dormouse.closing_data(i.id, i.round)
        )
        from dormouse.instances i where i.id = (select u.instance from dormouse.units u where u.id = p_unit)
    ), p_now));
end
$$;

-- Closes units as they are, and resolves what they still had open. Says whom to poke, as places in flight may be free.
create or replace function dormouse.let_go(p_units bigint[], p_status text, p_now timestamptz) returns text[]
language plpgsql as $$
begin
    update dormouse.units set status = p_status, closed_at = p_now where id = any (p_units);
    update dormouse.interactions set status = case when p_status = 'timed_out' then 'timed_out' else 'cancelled' end,
        resolved_at = p_now, send_at = null
    where unit = any (p_units) and status in ('pending', 'dispatched');
    if not found then
        return null;
    end if;
    return array(
        select distinct freed.queue from unnest(p_units) given (id)
        join dormouse.units u on u.id = any (array[given.id])
        cross join lateral unnest(dormouse.freed(u.transport)) freed (queue)
    );
end
$$;

-- Lets go of units whose instance could not be parked on them, as another holds its key. Says whom to poke.
create or replace function dormouse.let_go_unparked(p_units bigint[], p_now timestamptz) returns text[]
language plpgsql as $$
declare
    v_units constant bigint[] := array(
        select u.id from unnest(p_units) opened (id) join dormouse.units u on u.id = any (array[opened.id])
        join dormouse.instances i on i.id = any (array[u.instance])
        where u.status = 'open' and i.status <> 'awaiting_completion'
    );
begin
    return case when cardinality(v_units) > 0 then dormouse.let_go(v_units, 'cancelled', p_now) end;
end
$$;

-- Closes the units of instances that are cancelled. Says whom to poke.
create or replace function dormouse.cancel_units(p_instances bigint[], p_now timestamptz) returns text[]
language plpgsql as $$
begin
    return dormouse.let_go(array(
        select u.id from unnest(p_instances) parked (id)
        join dormouse.instances i on i.id = any (array[parked.id])
        join dormouse.units u on u.instance = any (array[i.id]) and u.round = any (array[i.round])
    ), 'cancelled', p_now);
end
$$;

-- The clock: a unit is late, or some of its items are, or it was armed for an item that was answered meanwhile.
create or replace function dormouse.fire_units(p_instances bigint[], p_now timestamptz) returns dormouse.effects
language plpgsql as $$
declare
    v_effects dormouse.effects;
    v_resolved record;
    v_late bigint;
    v_wake_at timestamptz;
    u dormouse.units;
begin
    for u in
        select o.* from unnest(p_instances) parked (id)
        join dormouse.instances i on i.id = any (array[parked.id])
        join dormouse.units o on o.instance = any (array[i.id]) and o.round = any (array[i.round]) order by i.id
    loop
        if u.deadline <= p_now then
            v_effects := dormouse.merge(v_effects, dormouse.close_unit(u.id, 'timed_out', p_now));
            continue;
        end if;
        for v_late in
            select n.id from dormouse.interactions n
            where n.unit = u.id and n.deadline <= p_now and n.deadline is not null
                and n.status in ('pending', 'dispatched')
            order by n.deadline, n.item limit 512
        loop
            select r.closed, r.effects into v_resolved
            from dormouse.resolve(v_late, 'timed_out', false, null, null, null, p_now) r;
            v_effects := dormouse.merge(v_effects, v_resolved.effects);
            exit when v_resolved.closed;
        end loop;
        select least(u.deadline, min(n.deadline)) into v_wake_at from dormouse.interactions n
        where n.unit = u.id and n.deadline is not null and n.status in ('pending', 'dispatched');
        update dormouse.instances i set wake_at = v_wake_at, changed_at = p_now
        where i.id = u.instance and i.status = 'awaiting_completion';
        if found then
            v_effects.wake_at := least(v_effects.wake_at, v_wake_at);
        end if;
    end loop;
    return v_effects;
end
$$;
