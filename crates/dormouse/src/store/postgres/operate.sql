-- What people and programs do to instances from outside. What is refused is told in words, for the caller to
-- make an error of.

-- Cancels an instance, and with it, for each spawn that chose so, its live children and theirs. One that runs is
-- asked to: it, and its children with it, are cancelled when its step ends. Why is in the instance's row, and is told
-- by all that go with it.
create or replace function dormouse.cancel_all(
    p_id bigint, p_now timestamptz, out descendants integer, out effects dormouse.effects
) language plpgsql as $$
declare
    v_found constant bigint[] := dormouse.lock_tree(p_id);
    -- One whose step was running has been asked before.
    v_undoing constant bigint[] := array(
        select u.id from unnest(dormouse.undoing(v_found)) u (id)
        join dormouse.instances i on i.id = any (array[u.id])
        where i.id <> p_id or i.status <> 'executing'
    );
    v_changes dormouse.change[];
    v_asked bigint[];
    v_units bigint[];
    v_root dormouse.instances;
    v_freed text[];
begin
    descendants := cardinality(v_found) - 1;
    if descendants > 0 then
        select * into v_root from dormouse.instances where id = p_id;
        update dormouse.instances set cancel_reason = coalesce(cancel_reason, v_root.cancel_reason),
            cancelled_with = coalesce(cancelled_with, v_root.cancelled_with, p_id)
        where id = any (v_found) and id <> p_id;
    end if;
    select array_agg(dormouse.changed(
            i, 'cancelled',
            p_kind => case when i.status = 'awaiting_completion' then 'unit.cancelled' else 'cancelled' end,
            p_data => case when i.status = 'awaiting_completion' then dormouse.closing_data(i.id, i.round)
                else dormouse.cancelled_data(i.cancel_reason, i.cancelled_with) end,
            p_then_kind => case when i.status = 'awaiting_completion' then 'cancelled' end,
            p_then_data => case when i.status = 'awaiting_completion'
                then dormouse.cancelled_data(i.cancel_reason, i.cancelled_with) end
        )) filter (where (i.id = p_id or i.status <> 'executing') and i.id <> all (v_undoing)),
        array_agg(i.id) filter (where i.id <> p_id and i.status = 'executing' and i.id <> all (v_undoing)),
        array_agg(i.id) filter (where i.status = 'awaiting_completion')
    into v_changes, v_asked, v_units
    from unnest(v_found) f (id) join dormouse.instances i on i.id = any (array[f.id]);
    update dormouse.instances set cancel_requested = true where id = any (v_asked);
    if v_units is not null then
        v_freed := dormouse.cancel_units(v_units, p_now);
    end if;
    effects := dormouse.ask_to_undo(v_undoing, p_now);
    if v_changes is not null then
        effects := dormouse.merge(effects, dormouse.apply(v_changes, p_now));
    end if;
    effects.cancel := effects.cancel || v_asked;
    effects.queues := effects.queues || v_freed;
end
$$;

-- Those of these instances that a cancel asks to undo what they did: their machine says so of their step, and nobody
-- has asked them before.
create or replace function dormouse.undoing(p_ids bigint[]) returns bigint[] language plpgsql stable as $$
begin
    return array(
        select i.id from unnest(p_ids) f (id)
        join dormouse.instances i on i.id = any (array[f.id])
        join dormouse.machines m on m.name = any (array[i.machine]) and m.version = any (array[i.version])
        where i.step in (select json_array_elements_text(m.told -> 'undo_on_cancel'))
            and (select true from dormouse.signals s where s.instance = i.id and s.dedup_key = '$cancel') is null
        order by i.id
    );
end
$$;

-- Asks instances, by a signal that holds the reason, to undo what they did and to end, and wakes them. One that is parked on children is woken
-- by their ends. The caller holds their locks, and lets go of their units.
create or replace function dormouse.ask_to_undo(p_ids bigint[], p_now timestamptz) returns dormouse.effects
language plpgsql as $$
declare
    v_effects dormouse.effects;
    v_changes dormouse.change[];
begin
    if cardinality(p_ids) = 0 then
        return v_effects;
    end if;
    with asked as (
        insert into dormouse.signals (instance, id, name, dedup_key, at, payload)
        select i.id, nextval('dormouse.signal_ids'), '$cancel', '$cancel', p_now,
            coalesce(to_json(i.cancel_reason), 'null')
        from unnest(p_ids) asked (id) join dormouse.instances i on i.id = asked.id order by i.id
        returning instance, id, payload
    ), kept as (
        update dormouse.instances i set inbox = i.inbox + 1,
            inbox_bytes = i.inbox_bytes + octet_length(a.payload::text)
        from asked a where i.id = any (array[a.instance])
    )
    select array_agg(dormouse.changed(
            i, 'runnable', p_runnable_at => p_now, p_inbox => i.inbox + 1,
            p_wake => case when i.status = 'awaiting_completion' then 'unit' else 'signal' end,
            p_kind => case when i.status = 'awaiting_completion' then 'unit.cancelled' else 'signal.received' end,
            p_data => case when i.status = 'awaiting_completion' then dormouse.closing_data(i.id, i.round)
                else dormouse.signal_data(a.id, '$cancel', a.payload, '$cancel') end
        )) filter (where i.status in ('awaiting_completion', 'awaiting_signal', 'scheduled')
            or (i.status = 'awaiting_children' and (
                select true from dormouse.instances c
                where c.parent = i.id and c.parent is not null and c.cascade and c.ended_at is null limit 1
            ) is null)),
        array_agg(i.id) filter (where i.status = 'executing')
    into v_changes, v_effects.cancel
    from asked a join dormouse.instances i on i.id = any (array[a.instance]);
    if v_changes is not null then
        v_effects := dormouse.merge(v_effects, dormouse.apply(v_changes, p_now));
    end if;
    return v_effects;
end
$$;

-- What the event of a cancel tells: the reason and the ancestor that took it along, if there are any.
create or replace function dormouse.cancelled_data(p_reason text, p_with bigint) returns json
language sql immutable as $$
    select json_strip_nulls(json_build_object('reason', p_reason, 'with', p_with))
    where p_reason is not null or p_with is not null
$$;

-- Cancels an instance, if it is at the seq at which it is expected.
create or replace function dormouse.cancel_one(
    p_namespace text, p_id bigint, p_key text, p_reason text, p_expected_seq bigint,
    out id bigint, out answer text, out status text, out seq bigint, out descendants integer,
    out effects dormouse.effects
) language plpgsql as $$
declare
    v_cancelled record;
    v_undoing bigint[];
begin
    id := dormouse.find(p_namespace, p_id, p_key);
    perform dormouse.lock_tree(id);
    select i.status, i.seq into status, seq from dormouse.instances i where i.id = cancel_one.id;
    if status is null then
        answer := 'not_found';
        return;
    elsif p_expected_seq <> seq then
        answer := 'stale_seq';
        return;
    elsif status in ('done', 'failed', 'cancelled') then
        answer := 'ended';
        return;
    end if;
    if p_reason is not null then
        -- What was said first stays.
        update dormouse.instances i set cancel_reason = coalesce(i.cancel_reason, p_reason) where i.id = cancel_one.id;
    end if;
    v_undoing := dormouse.undoing(array[id]);
    if status = 'executing' and cardinality(v_undoing) > 0 then
        effects := dormouse.ask_to_undo(v_undoing, dormouse.now());
        answer := 'requested';
    elsif status = 'executing' then
        update dormouse.instances i set cancel_requested = true where i.id = cancel_one.id;
        effects.cancel := array[id];
        answer := 'requested';
    else
        answer := case when cardinality(v_undoing) > 0 then 'requested' else 'cancelled' end;
        select c.descendants, c.effects into v_cancelled from dormouse.cancel_all(id, dormouse.now()) c;
        descendants := v_cancelled.descendants;
        effects := v_cancelled.effects;
    end if;
end
$$;

-- Cancels what a worker holds, and someone wanted cancelled, in place of its outcome.
create or replace function dormouse.cancel_held(
    p_worker bigint, p_id bigint, p_seq bigint, out done boolean, out effects dormouse.effects
) language plpgsql as $$
begin
    perform dormouse.lock_tree(p_id);
    done := exists (
        select from dormouse.instances
        where id = p_id and worker = p_worker and seq = p_seq and cancel_requested
    );
    if done then
        effects := (select c.effects from dormouse.cancel_all(p_id, dormouse.now()) c);
    end if;
end
$$;

-- Fails what a claim found runnable while another held its key, as long as nobody else has moved it.
create or replace function dormouse.fail_rival(p_id bigint, p_holder bigint, out effects dormouse.effects)
language plpgsql as $$
declare
    v_error constant text :=
        format('it could not become executing: its key is taken by instance %s', p_holder);
    v_changes dormouse.change[];
begin
    perform dormouse.lock(array[p_id], array[p_id], true);
    select array_agg(dormouse.changed(
            i, 'failed', p_error => v_error, p_kind => 'failed', p_data => json_build_object('error', v_error)
        ))
    into v_changes from dormouse.instances i where i.id = p_id and i.status = 'runnable';
    if v_changes is not null then
        effects := dormouse.apply(v_changes, dormouse.now());
    end if;
end
$$;

-- Fails a row that this worker has claimed and cannot read, and that row alone.
create or replace function dormouse.set_aside(p_worker bigint, p_id bigint, p_error text, out effects dormouse.effects)
language plpgsql as $$
declare
    i dormouse.instances;
    v_change dormouse.change;
begin
    perform dormouse.lock(array[p_id], array[p_id], true);
    select * into i from dormouse.instances o where o.id = p_id and o.worker = p_worker;
    if i.id is not null then
        v_change := dormouse.changed(
            i, 'failed', p_error => p_error, p_kind => 'failed', p_data => json_build_object('error', p_error)
        );
        -- One that is runnable was woken: what it awaited says by what.
        v_change.wake := case when i.wake in ('signal', 'timeout', 'children', 'unit', 'clock') then i.wake
            when i.awaits is not null then 'signal' end;
        effects := dormouse.apply(array[v_change], dormouse.now());
    end if;
end
$$;

-- Makes an ended instance live again, at its step or elsewhere, if it is at the seq at which it is expected.
create or replace function dormouse.retry(
    p_namespace text, p_id bigint, p_key text, p_step text, p_state text, p_expected_seq bigint,
    out id bigint, out answer text, out status text, out seq bigint, out key text, out holder bigint,
    out effects dormouse.effects
) language plpgsql as $$
declare
    v_now constant timestamptz := dormouse.now();
    i dormouse.instances;
    v_change dormouse.change;
    v_was_parked boolean;
    v_bytes bigint;
    v_received dormouse.effects;
begin
    id := dormouse.find(p_namespace, p_id, p_key);
    perform dormouse.lock(array[id], '{}', true);
    select * into i from dormouse.instances o where o.id = retry.id;
    status := i.status;
    seq := i.seq;
    key := i.key;
    holder := nullif(dormouse.key_holder(i.namespace, i.key), i.id);
    if i.id is null then
        answer := 'not_found';
    elsif p_expected_seq <> i.seq then
        answer := 'stale_seq';
    elsif i.status not in ('failed', 'cancelled') then
        answer := 'wrong_status';
    elsif holder is not null then
        answer := 'key_taken';
    else
        answer := 'retried';
        -- Whoever asked it to undo what it did has been answered.
        delete from dormouse.signals s where s.instance = i.id and s.dedup_key = '$cancel'
        returning octet_length(s.payload::text) into v_bytes;
        i.inbox := i.inbox - found::integer;
        if found then
            update dormouse.instances o set inbox_bytes = greatest(o.inbox_bytes - v_bytes, 0) where o.id = i.id;
        end if;
        v_was_parked := i.wake is null;
        v_change := dormouse.changed(i, 'runnable', p_runnable_at => v_now, p_attempt => 0, p_kind => 'retried');
        if p_step is not null then
            v_change.step := p_step;
            v_change.state := p_state::json;
            v_change.awaits := case when not v_was_parked then i.awaits end;
            v_change.barrier := case when not v_was_parked then i.barrier end;
        elsif v_was_parked and i.awaits is not null then
            -- It was cancelled while it waited, so it waits again; had it been woken, its step would run.
            v_change.status := 'awaiting_signal';
            v_change.runnable_at := i.runnable_at;
            v_change.wake_at := coalesce(i.parked_until, (
                select (h.data ->> 'until')::timestamptz from dormouse.history h
                where h.instance = i.id and h.kind = 'signal.waiting' order by h.seq desc limit 1
            ));
        elsif v_was_parked and i.barrier is not null then
            -- What it waited for was cancelled with it, or has ended meanwhile: it sees how.
            v_change.wake := case
                when exists (select from dormouse.units u where u.instance = i.id and u.round = i.round) then 'unit'
                else 'children'
            end;
        end if;
        if i.cancel_reason is not null or i.cancelled_with is not null then
            update dormouse.instances o set cancel_reason = null, cancelled_with = null where o.id = i.id;
        end if;
        effects := dormouse.apply(array[v_change], v_now);
        if i.key is not null then
            v_received := dormouse.receive_kept(array[i.namespace], array[i.key], array[i.id]);
            effects := dormouse.merge(effects, v_received);
        end if;
    end if;
end
$$;

-- Puts an instance's brake on or off, if it is at the seq at which it is expected.
create or replace function dormouse.pause(
    p_namespace text, p_id bigint, p_key text, p_paused boolean, p_expected_seq bigint,
    out id bigint, out answer text, out status text, out seq bigint, out effects dormouse.effects
) language plpgsql as $$
declare
    i dormouse.instances;
    v_change dormouse.change;
begin
    id := dormouse.find(p_namespace, p_id, p_key);
    perform dormouse.lock(array[id], '{}', true);
    select * into i from dormouse.instances o where o.id = pause.id;
    status := i.status;
    seq := i.seq;
    if i.id is null then
        answer := 'not_found';
    elsif p_expected_seq <> i.seq then
        answer := 'stale_seq';
    elsif i.status in ('done', 'failed', 'cancelled') then
        answer := 'wrong_status';
    else
        answer := 'ok';
        v_change := dormouse.changed(i, i.status, p_wake_at => i.wake_at);
        v_change.worker := i.worker;
        v_change.paused := p_paused;
        effects := dormouse.apply(array[v_change], dormouse.now());
    end if;
end
$$;

-- Adds and removes tags of an instance, live or ended. That is no transition.
create or replace function dormouse.tag(
    p_namespace text, p_id bigint, p_key text, p_add text[], p_remove text[],
    out answer text, out tags text[]
) language plpgsql as $$
declare
    v_id constant bigint := dormouse.find(p_namespace, p_id, p_key);
    i dormouse.instances;
begin
    select * into i from dormouse.instances o where o.id = v_id for no key update;
    tags := array(
        select distinct t.tag collate "C" from unnest(coalesce(i.tags, '{}') || p_add) t (tag)
        where t.tag <> all (p_remove) or t.tag = any (p_add) order by 1
    );
    if i.id is null then
        answer := 'not_found';
    elsif cardinality(tags) > 8 then
        answer := 'too_many';
    else
        answer := 'tagged';
        if tags is distinct from coalesce(i.tags, '{}') then
            update dormouse.instances o set tags = nullif(tag.tags, '{}') where o.id = i.id;
            delete from dormouse.tags t
            where t.namespace = i.namespace and t.tag = any (p_remove) and t.tag <> all (p_add) and t.instance = i.id;
            insert into dormouse.tags (namespace, tag, instance)
            select i.namespace, t.tag, i.id from unnest(p_add) t (tag) on conflict do nothing;
        end if;
    end if;
end
$$;
