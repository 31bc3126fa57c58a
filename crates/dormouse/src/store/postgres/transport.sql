-- Transports: how many sends one lets out, and what becomes of its breaker. The rules are those of rules/sends.rs.
--
-- Who takes sends of a limited transport holds its row, which it only tries for. Who takes sends of one without limits
-- shares an advisory lock, which a change of the limits takes alone: so a change counts everything that was taken before.

create or replace function dormouse.gate_queue(p_transport text) returns text
language sql immutable parallel safe as $$ select e'gate\t' || p_transport $$;

-- Whom to poke when requests of a transport may no longer be in flight.
create or replace function dormouse.freed(p_transport text) returns text[]
language plpgsql stable as $$
begin
    return (
        select array[dormouse.gate_queue(t.name)] from dormouse.transports t
        where t.name = p_transport and t.in_flight is not null
    );
end
$$;

create or replace function dormouse.micros(p_interval interval) returns bigint
language sql immutable parallel safe as $$ select (extract(epoch from p_interval) * 1000000)::bigint $$;

create or replace function dormouse.opens_for(t dormouse.transports) returns bigint
language sql immutable parallel safe as $$
    select least(t.breaker_open_us::numeric * (1::bigint << least(greatest(t.opens, 1) - 1, 30)),
        t.breaker_cap_us)::bigint
$$;

-- Lets what has passed come back to the bucket.
create or replace function dormouse.refilled(t dormouse.transports, p_now timestamptz) returns dormouse.transports
language plpgsql stable as $$
begin
    t.spent_at := coalesce(t.spent_at, p_now);
    t.spent := greatest(0, t.spent - t.rate_count * least(
        greatest(dormouse.micros(p_now - t.spent_at), 0), t.spent / t.rate_count + 1));
    t.spent_at := greatest(t.spent_at, p_now);
    return t;
end
$$;

-- After the clock was turned back, what was counted from a later moment is counted from now.
create or replace function dormouse.mended(t dormouse.transports, p_now timestamptz) returns dormouse.transports
language plpgsql stable as $$
begin
    if t.spent_at > p_now + interval '1 second' then
        t.spent_at := p_now;
    end if;
    if t.open_until is not null and t.breaker_failures is not null then
        t.open_until := least(t.open_until, dormouse.moment(null, dormouse.opens_for(t) + 1000000, p_now));
    end if;
    return t;
end
$$;

-- How many of those wanted may go now: how many at all, how many that are not in flight yet, and why not more.
create or replace function dormouse.allows(
    inout t dormouse.transports, p_wanted integer, p_lease_us bigint, p_now timestamptz,
    out sends integer, out fresh integer, out held text
) language plpgsql stable as $$
declare
    v_free bigint;
begin
    t := dormouse.mended(t, p_now);
    sends := p_wanted;
    if t.open_until is not null then
        t.probe_until := case when t.probe_until is not null
            then least(t.probe_until, dormouse.moment(null, p_lease_us + 1000000, p_now)) end;
        v_free := case when t.open_until > p_now or t.probe_until > p_now then 0 else 1 end;
        if v_free < sends then
            sends := v_free;
            held := 'breaker';
        end if;
    end if;
    if t.rate_count is not null then
        t := dormouse.refilled(t, p_now);
        v_free := greatest(0, t.rate_burst * t.rate_period_us - t.spent) / t.rate_period_us;
        if v_free < sends then
            sends := v_free;
            held := 'rate';
        end if;
    end if;
    fresh := sends;
    if t.in_flight is not null then
        v_free := t.in_flight - (
            select count(*) from (
                select from dormouse.interactions n
                where n.transport = t.name
                    and (n.status = 'dispatched' or (n.status = 'pending' and n.sends > 0 and n.error is null))
                order by n.transport, n.send_at, n.id limit t.in_flight
            ) flying
        );
        if v_free < fresh then
            fresh := v_free;
            held := 'in_flight';
        end if;
    end if;
end
$$;

-- When what holds a transport's sends up may let the next one go; of places in flight, when one is sent again that nobody
-- reported.
create or replace function dormouse.held_until(t dormouse.transports, p_held text, p_now timestamptz)
returns timestamptz language plpgsql stable as $$
declare
    v_missing bigint;
begin
    if p_held = 'breaker' then
        return greatest(t.open_until, t.probe_until);
    elsif p_held = 'rate' then
        v_missing := greatest(0, t.spent + t.rate_period_us - t.rate_burst * t.rate_period_us);
        return greatest(t.spent_at, p_now)
            + (v_missing / t.rate_count + (v_missing % t.rate_count > 0)::integer) * interval '1 microsecond';
    end if;
    return (
        select n.send_at from dormouse.interactions n
        where n.transport = t.name and n.send_at is not null
            and (n.status = 'dispatched' or (n.status = 'pending' and n.sends > 0 and n.error is null))
        order by n.transport, n.send_at, n.id limit 1
    );
end
$$;

-- Closes a breaker.
create or replace function dormouse.closed(t dormouse.transports) returns dormouse.transports
language plpgsql immutable as $$
begin
    t.epoch := t.epoch + (t.open_until is not null or t.failures > 0)::integer;
    t.failures := 0;
    t.opens := 0;
    t.error := null;
    t.opened_at := null;
    t.open_until := null;
    t.probe_until := null;
    return t;
end
$$;

-- Writes what of a transport is used.
create or replace function dormouse.save_transport(t dormouse.transports) returns void
language plpgsql as $$
begin
    update dormouse.transports o set spent = t.spent, spent_at = t.spent_at, failures = t.failures, opens = t.opens,
        epoch = t.epoch, opened_at = t.opened_at, open_until = t.open_until, probe_until = t.probe_until,
        error = t.error, turn = t.turn
    where o.name = t.name;
end
$$;

-- Notes what code declares, or changes what an operator set: a null leaves it as it is.
create or replace function dormouse.set_transport(
    p_name text, p_declared json, p_set json, p_unset text[], out effects dormouse.effects
) language plpgsql as $$
declare
    v_now constant timestamptz := dormouse.now();
    t dormouse.transports;
    v_was dormouse.transports;
    v_limits jsonb;
    v_sends bigint;
begin
    -- An engine that starts says what is known, most of the time.
    perform from dormouse.transports o where o.name = p_name and p_set is null and o.declared = p_declared::jsonb;
    if found then
        return;
    end if;
    perform set_config('lock_timeout', '5s', true);
    perform pg_advisory_xact_lock(1685025393, hashtext(p_name));
    insert into dormouse.transports (name) values (p_name) on conflict do nothing;
    select * into strict t from dormouse.transports o where o.name = p_name for no key update;
    t := dormouse.mended(t, v_now);
    v_was := t;
    t.declared := coalesce(p_declared::jsonb, t.declared);
    t.changed := case when p_set is null then t.changed else (t.changed || p_set::jsonb) - p_unset end;
    v_limits := coalesce(t.declared, '{}') || t.changed;
    t.rate_count := v_limits #>> '{rate,count}';
    t.rate_period_us := v_limits #>> '{rate,period_us}';
    t.rate_burst := v_limits #>> '{rate,burst}';
    t.in_flight := v_limits ->> 'in_flight';
    t.breaker_failures := v_limits #>> '{breaker,failures}';
    t.breaker_open_us := v_limits #>> '{breaker,open_us}';
    t.breaker_cap_us := v_limits #>> '{breaker,cap_us}';
    if v_was.rate_count is not null and t.rate_count is not null
        and (v_was.rate_count, v_was.rate_period_us, v_was.rate_burst)
            is distinct from (t.rate_count, t.rate_period_us, t.rate_burst)
    then
        v_was := dormouse.refilled(v_was, v_now);
        v_sends := v_was.spent / v_was.rate_period_us + (v_was.spent % v_was.rate_period_us > 0)::integer;
        t.spent := least(v_sends, t.rate_burst) * t.rate_period_us;
        t.spent_at := v_was.spent_at;
    elsif t.rate_count is null then
        t.spent := 0;
        t.spent_at := null;
    end if;
    if t.breaker_failures is null then
        t := dormouse.closed(t);
    end if;
    update dormouse.transports o set declared = t.declared, changed = t.changed,
        changed_at = case when p_set is null then o.changed_at else v_now end,
        rate_count = t.rate_count, rate_period_us = t.rate_period_us, rate_burst = t.rate_burst,
        in_flight = t.in_flight, breaker_failures = t.breaker_failures, breaker_open_us = t.breaker_open_us,
        breaker_cap_us = t.breaker_cap_us
    where o.name = p_name;
    perform dormouse.save_transport(t);
    effects.queues := array[dormouse.gate_queue(p_name)];
end
$$;

create or replace function dormouse.close_breaker(p_name text, out was_open boolean, out effects dormouse.effects)
language plpgsql as $$
declare
    t dormouse.transports;
begin
    perform set_config('lock_timeout', '5s', true);
    select * into t from dormouse.transports o where o.name = p_name for no key update;
    was_open := t.open_until is not null;
    if t.name is not null then
        perform dormouse.save_transport(dormouse.closed(t));
        effects.queues := array[dormouse.gate_queue(p_name)];
    end if;
end
$$;

-- Judges a transport by results of its sends: says `opened`, `again`, `closed` or `busy`, or nothing.
create or replace function dormouse.judge(
    p_name text, p_epoch bigint, p_responded boolean, p_failures integer, p_error text,
    out judged text, out failures integer, out until timestamptz, out effects dormouse.effects
) language plpgsql as $$
declare
    v_now constant timestamptz := dormouse.now();
    t dormouse.transports;
begin
    select * into t from dormouse.transports o where o.name = p_name for no key update skip locked;
    if t.name is null then
        perform from dormouse.transports o where o.name = p_name;
        judged := case when found then 'busy' end;
        return;
    end if;
    if t.breaker_failures is null or t.epoch <> p_epoch then
        return;
    end if;
    if p_responded and t.open_until is not null then
        perform dormouse.save_transport(dormouse.closed(t));
        judged := 'closed';
        effects.queues := array[dormouse.gate_queue(p_name)];
        return;
    elsif p_responded then
        t.failures := 0;
    end if;
    if p_failures > 0 then
        t.failures := least(t.failures::bigint + p_failures, 2147483647);
        t.error := p_error;
        if t.open_until is not null or t.failures >= t.breaker_failures then
            judged := case when t.open_until is null then 'opened' else 'again' end;
            t.opens := least(t.opens, 2147483646) + 1;
            t.epoch := t.epoch + 1;
            t.opened_at := coalesce(t.opened_at, v_now);
            t.open_until := dormouse.moment(null, dormouse.opens_for(t), v_now);
            t.probe_until := null;
            failures := t.failures;
            until := t.open_until;
            -- Who waits for a probe looks again: it is over.
            effects.queues := array[dormouse.gate_queue(p_name)];
        end if;
    end if;
    perform dormouse.save_transport(t);
end
$$;
