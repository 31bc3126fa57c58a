-- Answers from outside, and the outbox.

-- Completes or fails interactions: each is admitted once, or gets the first answer back, or is refused in a word.
-- Without waiting, one whose instance another transaction holds is `busy`.
create or replace function dormouse.complete(
    p_batch json, p_wait boolean, out results text[], out outputs text[], out errors text[], out effects dormouse.effects
) language plpgsql as $$
declare
    v_batch dormouse.completion[];
    v_locked bigint[];
    v_now timestamptz;
    c dormouse.completion;
    n dormouse.interactions;
    u dormouse.units;
    v_found record;
    v_resolved record;
begin
    -- A key that another transaction inserts at this moment is waited for in any case, but not for long.
    perform set_config('lock_timeout', case when p_wait then '250ms' else '50ms' end, true);
    select array_agg(b order by b.ord) into v_batch
    from json_populate_recordset(null::dormouse.completion, p_batch) b;
    v_locked := array(
        select distinct o.instance from unnest(v_batch) b
        left join lateral dormouse.by_correlation(b.namespace, b.correlation_id) found
            on b.correlation_id is not null
        -- Another tenant's is left alone: nobody is to wait for it, or to make it wait.
        join dormouse.interactions o
            on o.id = any (array[coalesce(b.id, found.id)]) and o.namespace = b.namespace
    );
    v_locked := coalesce(dormouse.lock(v_locked, '{}', p_wait), v_locked);
    v_now := dormouse.now();
    foreach c in array v_batch loop
        outputs[c.ord] := null;
        errors[c.ord] := null;
        if c.correlation_id is not null then
            -- Whom it means may have changed while we waited, and with what came before in this batch.
            select * into v_found from dormouse.by_correlation(c.namespace, c.correlation_id);
            c.id := v_found.id;
            results[c.ord] := case when v_found.ambiguous then 'ambiguous' end;
            continue when v_found.ambiguous;
        end if;
        select * into n from dormouse.interactions o where o.id = c.id;
        if n.namespace <> c.namespace then
            results[c.ord] := case when n.opened_at is null and not n.answered then 'unknown' else 'other_namespace' end;
            continue;
        end if;
        if n.id is not null and n.instance <> all (v_locked) then
            v_locked := v_locked || dormouse.lock(array[n.instance], '{}', false);
            if n.instance <> all (v_locked) then
                results[c.ord] := 'busy';
                continue;
            end if;
            select * into n from dormouse.interactions o where o.id = c.id;
        end if;
        select * into u from dormouse.units o where o.id = n.unit;
        results[c.ord] := case
            -- One that has no place in flight was never asked.
            when n.id is null or (n.opened_at is null and not n.answered) then 'unknown'
            when c.instance <> n.instance or c.unit <> n.unit or c.sends > n.sends then 'forged'
            -- A resume token reads back its holder's own answer, and only while it is good.
            when n.answered and dormouse.moment(c.expires_us, null, v_now) < v_now then 'expired'
            when n.answered and c.expires_us is not null and n.answered_by is distinct from c.answered_by then 'answered'
            when n.answered then 'repeat'
            -- Its time is over, even if the clock has not looked at it yet.
            when n.status in ('pending', 'dispatched') and n.deadline <= v_now then 'late'
            when dormouse.moment(c.expires_us, null, v_now) < v_now then 'expired'
            when n.status = 'cancelled' and u.status = 'cancelled' then 'cancelled'
            when n.status not in ('pending', 'dispatched') then 'late'
            when n.assigned_until > v_now and n.assignee is distinct from c.assignee then 'claimed'
            when c.output is not null and u.shape in ('one_to_many', 'many_to_many')
                and not dormouse.is_list(c.output::json, u.outputs_max) then 'not_a_list'
        end;
        if results[c.ord] = 'repeat' then
            outputs[c.ord] := n.output::text;
            errors[c.ord] := n.error;
        elsif results[c.ord] is null then
            select r.closed, r.wake_at, r.effects into v_resolved from dormouse.resolve(
                n.id, case when c.output is not null then 'completed' else 'failed' end, true, c.answered_by, c.error,
                c.output, v_now
            ) r;
            effects := dormouse.merge(effects, v_resolved.effects);
            effects.wake_at := least(effects.wake_at, v_resolved.wake_at);
            results[c.ord] := case when v_resolved.closed then 'woke' else 'admitted' end;
        end if;
    end loop;
end
$$;

-- The interaction with a correlation id that can be answered; if there is none, the newest that had it.
create or replace function dormouse.by_correlation(
    p_namespace text, p_correlation_id text, out id bigint, out ambiguous boolean
) language plpgsql stable as $$
begin
    select (array_agg(found.id))[1], count(*) filter (where found.is_open) = 2 into id, ambiguous from (
        select n.id, n.status in ('pending', 'dispatched') and n.opened_at is not null
            and coalesce(n.deadline > dormouse.now(), true) as is_open
        from dormouse.interactions n
        where n.namespace = p_namespace and n.correlation_id = p_correlation_id and n.correlation_id is not null
        order by 2 desc, n.id desc limit 2
    ) found;
end
$$;

create or replace function dormouse.is_list(p_output json, p_items_max bigint) returns boolean
language plpgsql immutable as $$
begin
    return case when json_typeof(p_output) = 'array' then json_array_length(p_output) <= p_items_max else false end;
end
$$;

-- Hands out what a transport is to send now, each to one sender, by interactions_outbox, and no more than its limits let.
create or replace function dormouse.outbox(
    p_transport text, p_namespaces text[], p_rows_max integer, p_lease_us bigint,
    out ids bigint[], out next timestamptz, out at timestamptz, out held text, out epoch bigint, out judges boolean,
    out is_watched boolean
) language plpgsql as $$
declare
    t dormouse.transports;
    v_was dormouse.transports;
    v_allowed record;
    v_rows_max integer := p_rows_max;
    v_some record;
begin
    -- This one waits for the disk: a resume token goes out with each send, and is held against what is stored of it.
    at := dormouse.now();
    ids := '{}';
    t := dormouse.hold_transport(p_transport);
    if t.turn is null then
        -- Another is just taking from it, or changes it.
        held := 'busy';
        return;
    end if;
    epoch := t.epoch;
    judges := t.breaker_failures is not null;
    is_watched := t.failures > 0 or t.open_until is not null;
    if not dormouse.is_limited(t) then
        select * into v_some from dormouse.lend(p_transport, p_namespaces, null, p_rows_max, p_lease_us, at);
        ids := v_some.ids;
        next := v_some.next;
        return;
    end if;
    v_was := t;
    v_allowed := dormouse.allows(t, p_rows_max, p_lease_us, at);
    t := v_allowed.t;
    -- Without a lease they would be due again at once.
    if t.in_flight is not null and v_allowed.sends > 0 and p_lease_us > 0 then
        -- They have their places, and would keep them from others for as long as they are not reported.
        ids := dormouse.lend_overdue(p_transport, p_namespaces, v_allowed.sends, p_lease_us, at);
    end if;
    v_rows_max := least(v_allowed.sends, cardinality(ids) + v_allowed.fresh);
    if cardinality(ids) < v_rows_max then
        select * into v_some from dormouse.lend(
            p_transport, p_namespaces, t.turn, v_rows_max - cardinality(ids), p_lease_us, at);
        ids := ids || v_some.ids;
        next := v_some.next;
        t.turn := coalesce(v_some.turn, t.turn);
    end if;
    if t.rate_count is not null then
        t.spent := t.spent + cardinality(ids) * t.rate_period_us;
    end if;
    if t.open_until is not null and cardinality(ids) > 0 then
        t.probe_until := dormouse.moment(null, p_lease_us, at);
    end if;
    if cardinality(ids) >= v_rows_max and v_allowed.held is not null then
        held := v_allowed.held;
        next := dormouse.held_until(t, held, at);
    elsif cardinality(ids) >= v_rows_max then
        -- The namespaces behind were not looked at.
        next := at;
    end if;
    if t is distinct from v_was then
        perform dormouse.save_transport(t);
    end if;
end
$$;

-- A transport as a sender may go by it: under its lock if it is limited, else so that its limits do not change meanwhile.
-- One that nobody limited or declared has an empty turn and no name; the turn is null if another has the lock.
create or replace function dormouse.hold_transport(p_transport text) returns dormouse.transports
language plpgsql as $$
declare
    t dormouse.transports;
begin
    select * into t from dormouse.transports o where o.name = p_transport;
    if dormouse.is_limited(t) then
        select * into t from dormouse.transports o where o.name = p_transport for no key update skip locked;
        return t;
    elsif not pg_try_advisory_xact_lock_shared(1685025393, hashtext(p_transport)) then
        return null;
    end if;
    -- As it is now that nobody can limit it.
    select * into t from dormouse.transports o where o.name = p_transport;
    if not found then
        t.turn := '';
        t.failures := 0;
        t.epoch := 0;
    elsif dormouse.is_limited(t) then
        return null;
    end if;
    return t;
end
$$;

create or replace function dormouse.is_limited(t dormouse.transports) returns boolean
language sql immutable parallel safe as $$
    select t.rate_count is not null or t.in_flight is not null or t.open_until is not null
$$;

-- Lends what is in flight and was not reported in time, by interactions_flying.
create or replace function dormouse.lend_overdue(
    p_transport text, p_namespaces text[], p_rows_max integer, p_lease_us bigint, p_now timestamptz
) returns bigint[] language plpgsql as $$
declare
    v_ids constant bigint[] := array(
        select n.id from dormouse.interactions n
        where n.transport = p_transport and n.send_at <= p_now
            and (n.status = 'dispatched' or (n.status = 'pending' and n.sends > 0 and n.error is null))
            and (p_namespaces is null or n.namespace = any (p_namespaces))
        order by n.transport, n.send_at, n.id limit p_rows_max
        for no key update skip locked
    );
begin
    update dormouse.interactions n set send_at = dormouse.moment(null, p_lease_us, p_now), sends = n.sends + 1
    where n.id = any (v_ids);
    return v_ids;
end
$$;

-- Lends what is due, from the namespace after this one on and round to it, and no further than it must; without one, from the
-- first to the last. Says when there may be more, and which namespace was served last.
create or replace function dormouse.lend(
    p_transport text, p_namespaces text[], p_turn text, p_rows_max integer, p_lease_us bigint, p_now timestamptz,
    out ids bigint[], out next timestamptz, out turn text
) language plpgsql as $$
declare
    v_turn constant text collate "C" := coalesce(p_turn, '');
    v_names constant text[] := array(
        select name from unnest(p_namespaces) name
        order by p_turn is not null and name collate "C" <= v_turn, case when p_turn is not null then name collate "C" end
    );
    v_namespace text collate "C" := v_turn;
    v_is_round boolean := v_turn = '';
    v_place integer := 0;
    v_taken bigint[];
begin
    ids := '{}';
    loop
        if p_namespaces is null then
            -- The next namespace that has something, by a hop in the index.
            v_namespace := (
                select n.namespace from dormouse.interactions n
                where n.transport = p_transport and n.namespace > v_namespace and n.send_at is not null
                order by n.namespace limit 1
            );
            if v_namespace is null and not v_is_round then
                v_is_round := true;
                v_namespace := '';
                continue;
            end if;
            exit when v_is_round and v_turn <> '' and v_namespace > v_turn;
        else
            v_place := v_place + 1;
            v_namespace := v_names[v_place];
        end if;
        exit when v_namespace is null;
        v_taken := array(
            select n.id from dormouse.interactions n
            where n.transport = p_transport and n.namespace = v_namespace and n.send_at <= p_now
                and n.send_at is not null
            order by n.send_at, n.id limit p_rows_max - cardinality(ids)
            for no key update skip locked
        );
        update dormouse.interactions n
        set send_at = dormouse.moment(null, p_lease_us, p_now), sends = n.sends + 1, error = null
        where n.id = any (v_taken);
        ids := ids || v_taken;
        turn := case when cardinality(v_taken) > 0 then v_namespace else turn end;
        -- What another transaction holds is asked for again in a moment, not at once.
        next := least(next, (
            select case when n.send_at <= p_now and n.id <> all (ids) and cardinality(ids) < p_rows_max
                then p_now + interval '50 milliseconds'
                else n.send_at end
            from dormouse.interactions n
            where n.transport = p_transport and n.namespace = v_namespace and n.send_at is not null
            order by n.send_at limit 1
        ));
        exit when p_turn is not null and cardinality(ids) >= p_rows_max;
    end loop;
end
$$;

-- Notes what became of sends, unless their interaction was resolved or handed out again meanwhile. Says of which not,
-- by their places in the batch, as another transaction holds their instance.
create or replace function dormouse.sent(p_batch json, out busy integer[], out effects dormouse.effects)
language plpgsql as $$
declare
    v_batch dormouse.send[];
    v_locked bigint[];
    v_now timestamptz;
    s dormouse.send;
    n dormouse.interactions;
    v_resolved record;
begin
    perform set_config('lock_timeout', '50ms', true);
    select array_agg(b order by b.ord) into v_batch from json_populate_recordset(null::dormouse.send, p_batch) b;
    v_locked := dormouse.lock(array(
        select distinct o.instance from unnest(v_batch) b
        join dormouse.interactions o on o.id = any (array[b.id])
    ), '{}', false);
    v_now := dormouse.now();
    foreach s in array v_batch loop
        select * into n from dormouse.interactions o
        where o.id = s.id and o.sends = s.sends and o.status in ('pending', 'dispatched');
        continue when n.id is null;
        if n.instance <> all (v_locked) then
            busy := busy || s.ord;
            continue;
        end if;
        case s.outcome
            when 'retry' then
                update dormouse.interactions o set send_at = dormouse.moment(null, s.in_us, v_now), error = s.error
                where o.id = s.id;
                effects.queues := effects.queues || dormouse.outbox_queue(n.transport)
                    || dormouse.freed(n.transport);
            when 'sent' then
                update dormouse.interactions o
                set status = 'dispatched', dispatched_at = v_now, send_at = null, error = null where o.id = s.id;
                effects.wake_at := least(effects.wake_at, dormouse.tell(n.instance, 'interaction.dispatched',
                    json_build_object('unit', n.unit, 'interaction', n.id, 'item', n.item, 'sends', n.sends), null,
                    v_now));
            when 'rejected' then
                select r.wake_at, r.effects into v_resolved
                from dormouse.resolve(s.id, 'failed', false, null, s.error, null, v_now) r;
                effects := dormouse.merge(effects, v_resolved.effects);
                effects.wake_at := least(effects.wake_at, v_resolved.wake_at);
        end case;
    end loop;
end
$$;

-- Claims an open interaction for a while, for a person or a program.
create or replace function dormouse.assign(
    p_namespace text, p_id bigint, p_assignee text, p_lease_us bigint, out assignee text, out until timestamptz
) language plpgsql as $$
declare
    v_now timestamptz;
begin
    perform from dormouse.interactions n where n.id = p_id and n.namespace = p_namespace for no key update;
    v_now := dormouse.now();
    update dormouse.interactions n
    set assignee = p_assignee, assigned_until = dormouse.moment(null, p_lease_us, v_now)
    where n.id = p_id and n.namespace = p_namespace and n.status in ('pending', 'dispatched')
        and n.opened_at is not null and coalesce(n.deadline > v_now, true)
        and (n.assigned_until is null or n.assigned_until <= v_now or n.assignee = p_assignee);
    select n.assignee, n.assigned_until into assign.assignee, until from dormouse.interactions n
    where n.id = p_id and n.namespace = p_namespace and n.status in ('pending', 'dispatched')
        and n.opened_at is not null and coalesce(n.deadline > v_now, true);
end
$$;
