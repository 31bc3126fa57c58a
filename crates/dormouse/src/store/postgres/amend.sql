-- Drops a signal from an inbox (no payload), or gives it another payload, if the instance's step does not run and it is at
-- the seq at which it is expected. One that is parked on an edited signal is woken by it; one that a dropped one alone had
-- woken waits again. The request to undo is no signal that anybody sent.
create or replace function dormouse.amend(
    p_namespace text, p_id bigint, p_key text, p_signal bigint, p_payload text, p_expected_seq bigint,
    out id bigint, out answer text, out status text, out seq bigint, out effects dormouse.effects
) language plpgsql as $$
declare
    v_now constant timestamptz := dormouse.now();
    i dormouse.instances;
    s dormouse.signals;
    v_kind text;
    v_data json;
    v_wakes boolean;
    v_waits boolean;
    v_change dormouse.change;
begin
    id := dormouse.find(p_namespace, p_id, p_key);
    perform dormouse.lock(array[id], '{}', true);
    select * into i from dormouse.instances o where o.id = amend.id;
    select * into s from dormouse.signals o
    where o.instance = i.id and o.id = p_signal and not o.consumed and o.name <> '$cancel';
    status := i.status;
    seq := i.seq;
    if i.id is null then
        answer := 'not_found';
        return;
    elsif p_expected_seq <> i.seq then
        answer := 'stale_seq';
        return;
    elsif i.status = 'executing' then
        answer := 'wrong_status';
        return;
    elsif s.id is null then
        answer := 'no_signal';
        return;
    end if;
    answer := 'amended';
    if p_payload is null then
        delete from dormouse.signals o where o.instance = i.id and o.id = p_signal;
        v_kind := 'signal.dropped';
        v_data := json_build_object('id', s.id, 'name', s.name, 'payload', s.payload);
        i.inbox := i.inbox - 1;
        v_waits := i.wake = 'signal' and i.awaits is not null and not exists (
            select from dormouse.signals o
            where o.instance = i.id and not o.consumed and o.name = any (i.awaits || '$cancel'::text)
        );
    else
        update dormouse.signals o set payload = p_payload::json where o.instance = i.id and o.id = p_signal;
        v_kind := 'signal.edited';
        v_data := json_build_object('id', s.id, 'name', s.name, 'payload', p_payload::json, 'was', s.payload);
        v_wakes := i.status = 'awaiting_signal' and s.name = any (i.awaits);
    end if;
    update dormouse.instances o set inbox_bytes = case
        when i.inbox > 0 then greatest(o.inbox_bytes - octet_length(s.payload::text), 0) + coalesce(octet_length(p_payload), 0)
        else 0 end
    where o.id = i.id;
    if i.status in ('done', 'failed', 'cancelled') then
        -- Its end stays as it was.
        update dormouse.instances o
        set inbox = i.inbox, wake = case when not coalesce(v_waits, false) then i.wake end, seq = o.seq + 1,
            changed_at = v_now
        where o.id = i.id;
        insert into dormouse.history (instance, seq, kind, version, step, at, data, id)
        select i.id, i.seq + 1, v_kind, i.version, i.step, v_now, v_data, dormouse.event_id(dormouse.feed_place())
        where i.keeps_history;
        return;
    end if;
    v_change := dormouse.changed(i, i.status, p_wake_at => i.wake_at, p_kind => v_kind, p_data => v_data);
    if v_wakes then
        v_change.status := 'runnable';
        v_change.runnable_at := v_now;
        v_change.wake_at := null;
        v_change.wake := 'signal';
        v_change.then_kind := 'signal.received';
        v_change.then_data := dormouse.signal_data(s.id, s.name, p_payload::json, s.dedup_key);
    elsif v_waits then
        v_change.status := 'awaiting_signal';
        v_change.wake := null;
        v_change.wake_at := (
            select (h.data ->> 'until')::timestamptz from dormouse.history h
            where h.instance = i.id and h.kind = 'signal.waiting' order by h.seq desc limit 1
        );
    end if;
    effects := dormouse.apply(array[v_change], v_now);
end
$$;

-- Replaces the state of an instance whose step does not run and that is not done, if it is at the seq at which it is
-- expected. It stays where it is.
create or replace function dormouse.edit(
    p_namespace text, p_id bigint, p_key text, p_state text, p_expected_seq bigint,
    out id bigint, out answer text, out status text, out seq bigint
) language plpgsql as $$
declare
    v_now constant timestamptz := dormouse.now();
    i dormouse.instances;
begin
    id := dormouse.find(p_namespace, p_id, p_key);
    perform dormouse.lock(array[id], '{}', true);
    select * into i from dormouse.instances o where o.id = edit.id;
    status := i.status;
    seq := i.seq;
    if i.id is null then
        answer := 'not_found';
        return;
    elsif p_expected_seq <> i.seq then
        answer := 'stale_seq';
        return;
    elsif i.status in ('executing', 'done') then
        answer := 'wrong_status';
        return;
    end if;
    answer := 'edited';
    update dormouse.instances o set state = p_state::json, seq = o.seq + 1, changed_at = v_now where o.id = i.id;
    insert into dormouse.history (instance, seq, kind, version, step, at, state, id)
    select i.id, i.seq + 1, 'state.edited', i.version, i.step, v_now, p_state::json,
        dormouse.event_id(dormouse.feed_place())
    where i.keeps_history;
end
$$;
