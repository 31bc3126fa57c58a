-- Mail: what outcomes send to other instances. It is written by their commit (commit.sql), and delivered here: one
-- transaction removes a piece and does what it says, so each is delivered once, whoever tries.
--
-- Several share a statement, so nothing here waits for a lock that only one piece needs: that one is put off, and with it
-- the later pieces of the same sender to the same address.

-- The id or the key that an address means.
create or replace function dormouse.address_id(p_address text) returns bigint language sql immutable as $$
    select case when starts_with(p_address, 'id:') then substr(p_address, 4)::bigint end
$$;

create or replace function dormouse.address_key(p_address text) returns text language sql immutable as $$
    select case when starts_with(p_address, 'key:') then substr(p_address, 5) end
$$;

create or replace function dormouse.address_told(p_address text) returns json language sql immutable as $$
    select coalesce(to_json(dormouse.address_id(p_address)), to_json(dormouse.address_key(p_address)))
$$;

-- What an event says that a piece of mail was.
create or replace function dormouse.mail_told(p_kind text, p_name text, p_address text) returns json
language sql immutable as $$
    select case
        when p_kind = 'start' and p_address is null then json_build_object('start', p_name)
        when p_kind = 'start' then json_build_object('start', p_name, 'key', dormouse.address_key(p_address))
        when p_kind = 'signal' then json_build_object('signal', p_name, 'to', dormouse.address_told(p_address))
        else json_build_object('cancel', dormouse.address_told(p_address))
    end
$$;

-- Writes the mail of outcomes that are committed. A start after a while counts from now, however long its delivery takes.
create or replace function dormouse.send_mail(p_batch dormouse.decided[], p_owned boolean[], p_now timestamptz)
returns void language plpgsql as $$
begin
    insert into dormouse.mail (
        sender, seq, namespace, kind, address, name, dedup_key, depth, at, deliver_at, keep_us, body
    )
    select o.id, o.seq + 1, i.namespace, m.piece ->> 'kind', m.piece ->> 'address', m.piece ->> 'name',
        m.piece ->> 'dedup_key', i.depth + 1, p_now, p_now, (m.piece ->> 'keep_us')::bigint,
        case when m.piece ->> 'in_us' is null then (m.piece ->> 'body')::json
            else ((m.piece ->> 'body')::jsonb || jsonb_build_object('in_us', null, 'at_us',
                (extract(epoch from p_now) * 1000000)::bigint + (m.piece ->> 'in_us')::bigint
            ))::json end
    from unnest(p_batch) o
    cross join lateral json_array_elements(o.mail) with ordinality m (piece, place)
    join dormouse.instances i on i.id = any (array[o.id])
    where o.mail is not null and p_owned[o.ord]
    order by o.ord, m.place;
end
$$;

-- Mail that is due, by mail_due. Only a signal that is to be delivered comes with its document, to be checked.
create or replace function dormouse.mail_due(
    p_rows_max integer, out mail json, out next timestamptz, out at timestamptz
) language plpgsql as $$
begin
    at := dormouse.now();
    select json_agg(json_build_object(
        'id', m.id, 'namespace', m.namespace, 'tries', m.tries, 'address', m.address,
        'name', case when m.kind = 'signal' and m.undelivered is null then m.name end,
        'dedup_key', m.dedup_key,
        'payload', case when m.kind = 'signal' and m.undelivered is null then m.body::text end
    ) order by m.deliver_at, m.id)
    into mail from (
        select * from dormouse.mail d where d.deliver_at <= mail_due.at order by d.deliver_at, d.id limit p_rows_max
    ) m;
    if coalesce(json_array_length(mail), 0) < p_rows_max then
        select d.deliver_at into next from dormouse.mail d
        where d.deliver_at > mail_due.at order by d.deliver_at limit 1;
    end if;
end
$$;

-- Delivers, refuses or puts off pieces of mail: `deliver`, `refuse` with a reason, `put_off`. The results, in the order of
-- the ids: `delivered`, `undelivered`, `put_off`, `gone`.
create or replace function dormouse.post(
    p_ids bigint[], p_hows text[], p_reasons text[], p_inbox_max integer, p_inbox_bytes_max bigint,
    p_depth_max integer, p_kept_max bigint, p_kept_bytes_max bigint, out results text[], out effects dormouse.effects
) language plpgsql as $$
declare
    v_now timestamptz;
    v_mail dormouse.mail[];
    v_held bigint[];
    v_part dormouse.mail[];
    v_group record;
    v_answer record;
    v_delivered bigint[] := '{}';
    v_failed bigint[] := '{}';
    v_reasons text[] := '{}';
    v_noted bigint[];
begin
    v_mail := array(
        select m from dormouse.mail m where m.id = any (p_ids) order by m.id for update skip locked
    );
    v_now := dormouse.now();
    -- What is put off here, and whatever goes to the same address after a piece that stays.
    v_held := array(
        select m.id from unnest(v_mail) m
        where m.undelivered is null and (p_hows[array_position(p_ids, m.id)] = 'put_off' or (
            select true from dormouse.mail e
            where e.sender = m.sender and e.address = m.address and e.id < m.id and e.undelivered is null
                and e.id <> all (array(select o.id from unnest(v_mail) o)) limit 1
        ))
    );
    -- Why a piece cannot be delivered is known already, or said by the caller.
    select coalesce(array_agg(f.id), '{}'), coalesce(array_agg(f.reason), '{}') into v_failed, v_reasons from (
        select m.id, coalesce(m.undelivered, case
            when p_hows[array_position(p_ids, m.id)] = 'refuse' then p_reasons[array_position(p_ids, m.id)]
            when m.kind = 'start' and m.depth > p_depth_max then 'the chain of starts by mail is at its limit'
        end) as reason
        from unnest(v_mail) m where m.id <> all (v_held)
    ) f where f.reason is not null;
    -- Pieces to one address keep their order: where their kind changes, a new wave begins.
    for v_group in
        select w.wave, w.kind, array_agg(w.id order by w.id) as ids from (
            select c.id, c.kind, sum(c.changes) over (partition by c.sender, c.address order by c.id) as wave
            from (
                select m.id, m.kind, m.sender, coalesce(m.address, 'mail:' || m.id) as address, coalesce(
                    (m.kind <> lag(m.kind) over (partition by m.sender, m.address order by m.id))::integer, 0
                ) as changes
                from unnest(v_mail) m where m.undelivered is null and m.id <> all (v_failed)
            ) c
        ) w group by w.wave, w.kind order by w.wave, w.kind desc
    loop
        v_part := array(
            select m from unnest(v_mail) m
            where m.id = any (v_group.ids) and m.id <> all (v_held) and (
                m.address is null or not exists (
                    select from unnest(v_mail) e
                    where e.id = any (v_held) and e.sender = m.sender and e.address = m.address and e.id < m.id
                )
            ) order by m.id
        );
        v_held := v_held || array(
            select g.id from unnest(v_group.ids) g (id) where g.id <> all (v_held)
                and g.id <> all (array(select m.id from unnest(v_part) m))
        );
        if cardinality(v_part) > 0 then
            select a.results, a.effects into v_answer
            from dormouse.post_part(
                v_group.kind, v_part, p_inbox_max, p_inbox_bytes_max, p_kept_max, p_kept_bytes_max, 100
            ) a;
            effects := dormouse.merge(effects, v_answer.effects);
            for place in 1..cardinality(v_part) loop
                if v_answer.results[place] is null then
                    v_delivered := v_delivered || (v_part[place]).id;
                elsif v_answer.results[place] = 'busy' then
                    v_held := v_held || (v_part[place]).id;
                else
                    v_failed := v_failed || (v_part[place]).id;
                    v_reasons := v_reasons || v_answer.results[place];
                end if;
            end loop;
        end if;
    end loop;
    v_noted := dormouse.note_undelivered(v_failed, v_reasons, v_now);
    delete from dormouse.mail where id = any (v_delivered || v_noted);
    update dormouse.mail m set tries = m.tries + 1,
        undelivered = coalesce(m.undelivered, v_reasons[array_position(v_failed, m.id)]),
        deliver_at = v_now + least(interval '5 milliseconds' * (1 << least(2 * m.tries, 10)), interval '5 seconds')
    where m.id = any (v_held || v_failed) and m.id <> all (v_noted);
    results := array(
        select case
            when p.id = any (v_delivered) then 'delivered'
            when p.id = any (v_noted) then 'undelivered'
            when p.id = any (v_held || v_failed) then 'put_off'
            else 'gone'
        end
        from unnest(p_ids) with ordinality p (id, place) order by p.place
    );
end
$$;

-- Delivers pieces of one kind: null for each that was delivered, `busy`, or why it cannot be. If they cannot be had
-- together, each is tried alone.
create or replace function dormouse.post_part(
    p_kind text, p_mail dormouse.mail[], p_inbox_max integer, p_inbox_bytes_max bigint, p_kept_max bigint,
    p_kept_bytes_max bigint, p_wait_ms integer,
    out results text[], out effects dormouse.effects
) language plpgsql as $$
declare
    v_one record;
begin
    begin
        perform set_config('lock_timeout', p_wait_ms || 'ms', true);
        case p_kind
            when 'start' then
                select p.results, p.effects into v_one
                from dormouse.post_starts(p_mail, p_inbox_max, p_inbox_bytes_max) p;
            when 'signal' then
                select p.results, p.effects into v_one
                from dormouse.post_signals(
                    p_mail, p_inbox_max, p_inbox_bytes_max, p_kept_max, p_kept_bytes_max, p_wait_ms
                ) p;
            else
                select p.results, p.effects into v_one from dormouse.post_cancels(p_mail) p;
        end case;
        results := v_one.results;
        effects := v_one.effects;
        return;
    exception when lock_not_available or serialization_failure or deadlock_detected then
        results := array['busy'];
        effects := null;
    end;
    if cardinality(p_mail) = 1 then
        return;
    end if;
    results := '{}';
    for place in 1..cardinality(p_mail) loop
        select p.results, p.effects into v_one
        from dormouse.post_part(
            p_kind, p_mail[place:place], p_inbox_max, p_inbox_bytes_max, p_kept_max, p_kept_bytes_max, 5
        ) p;
        results := results || v_one.results;
        effects := dormouse.merge(effects, v_one.effects);
    end loop;
end
$$;

-- Starts instances. If a key is taken, the signals of that start go to the holder, as with every start.
create or replace function dormouse.post_starts(
    p_mail dormouse.mail[], p_inbox_max integer, p_inbox_bytes_max bigint,
    out results text[], out effects dormouse.effects
) language plpgsql as $$
declare
    v_batch dormouse.arrival[];
    v_inserted record;
begin
    v_batch := array(
        select json_populate_record(
            json_populate_record(null::dormouse.arrival, m.body), json_build_object(
                'ord', m.place, 'depth', m.depth, 'forked', json_build_object('sent_by', m.sender, 'seq', m.seq),
                'inbox_max', p_inbox_max, 'inbox_bytes_max', p_inbox_bytes_max
            )
        )
        from unnest(p_mail) with ordinality m (
            id, sender, seq, namespace, kind, address, name, dedup_key, depth, at, deliver_at, tries, undelivered, body,
            keep_us, place
        ) order by m.place
    );
    select i.ids, i.holders, i.signals, i.effects into v_inserted from dormouse.insert_all(v_batch) i;
    effects := v_inserted.effects;
    results := array(
        select case
            when v_inserted.ids[a.ord] is not null then null
            when a.signals is null then format('its key is taken by instance %s', v_inserted.holders[a.ord])
            else (
                select case min(r.result)
                    when 'no_target' then 'the target is unknown or has ended'
                    when 'inbox_full' then 'the inbox of the target is full'
                end
                from (
                    select s.ord, row_number() over (order by s.ord, e.place) as place
                    from unnest(v_batch) s cross join lateral json_array_elements(s.signals) with ordinality e (signal, place)
                    where s.signals is not null
                ) sent
                join json_array_elements_text(v_inserted.signals -> 'results') with ordinality r (result, place)
                    on r.place = sent.place
                where sent.ord = a.ord and r.result in ('no_target', 'inbox_full')
            )
        end
        from unnest(v_batch) a order by a.ord
    );
end
$$;

-- Delivers signals to those instances that can be had at once, and keeps those that are to be kept.
create or replace function dormouse.post_signals(
    p_mail dormouse.mail[], p_inbox_max integer, p_inbox_bytes_max bigint, p_kept_max bigint, p_kept_bytes_max bigint,
    p_wait_ms integer, out results text[], out effects dormouse.effects
) language plpgsql as $$
declare
    v_sent json;
    v_delivered record;
    v_results text[];
    v_places integer[];
    v_kept record;
begin
    v_sent := (
        select json_agg(json_build_object(
            'ord', m.place, 'call', m.place, 'namespace', m.namespace, 'id', dormouse.address_id(m.address),
            'key', dormouse.address_key(m.address), 'name', m.name, 'payload', m.body::text,
            'dedup_key', m.dedup_key, 'inbox_max', p_inbox_max, 'inbox_bytes_max', p_inbox_bytes_max,
            'trace', (select i.trace from dormouse.instances i where i.id = m.sender),
            'keep_us', m.keep_us, 'kept_max', p_kept_max, 'kept_bytes_max', p_kept_bytes_max
        ) order by m.place)
        from unnest(p_mail) with ordinality m (
            id, sender, seq, namespace, kind, address, name, dedup_key, depth, at, deliver_at, tries, undelivered, body,
            keep_us, place
        )
    );
    select d.results, d.effects into v_delivered from dormouse.deliver_what_can_be(v_sent, p_wait_ms) d;
    v_results := v_delivered.results;
    effects := v_delivered.effects;
    -- Those that found nobody, numbered anew.
    select array_agg(p.place order by p.place) into v_places
    from unnest(p_mail, v_results) with ordinality p (
        id, sender, seq, namespace, kind, address, name, dedup_key, depth, at, deliver_at, tries, undelivered, body,
        keep_us, result, place
    ) where p.keep_us is not null and p.result = 'no_target';
    if v_places is not null then
        select k.results, k.effects into v_kept from dormouse.keep((
            select json_agg(jsonb_set((v_sent -> (p.place - 1))::jsonb, '{ord}', to_jsonb(p.ord)) order by p.ord)
            from unnest(v_places) with ordinality p (place, ord)
        )) k;
        effects := dormouse.merge(effects, v_kept.effects);
        for place in 1..cardinality(v_places) loop
            v_results[v_places[place]] := v_kept.results[place];
        end loop;
    end if;
    results := array(
        select case r.result
            when 'busy' then 'busy'
            when 'no_target' then 'the target is unknown or has ended'
            when 'inbox_full' then 'the inbox of the target is full'
            when 'kept_full' then 'no more signals can be kept in this namespace'
        end
        from unnest(v_results) with ordinality r (result, place) order by r.place
    );
end
$$;

-- Cancels those instances that can be had at once, with all that is cancelled with them.
create or replace function dormouse.post_cancels(
    p_mail dormouse.mail[], out results text[], out effects dormouse.effects
) language plpgsql as $$
declare
    m dormouse.mail;
    v_tree bigint[];
    v_cancelled record;
begin
    results := '{}';
    foreach m in array p_mail loop
        v_tree := dormouse.tree(dormouse.find(
            m.namespace, dormouse.address_id(m.address), dormouse.address_key(m.address)
        ));
        if v_tree is not null and not v_tree <@ dormouse.lock(v_tree, v_tree, false) then
            results := array_append(results, 'busy');
            continue;
        end if;
        select c.answer, c.effects into v_cancelled from dormouse.cancel_one(
            m.namespace, dormouse.address_id(m.address), dormouse.address_key(m.address), m.body #>> '{}', null
        ) c;
        effects := dormouse.merge(effects, v_cancelled.effects);
        results := array_append(results, case
            when v_cancelled.answer = 'not_found' then 'the target is unknown or has ended'
        end);
    end loop;
end
$$;

-- Records in their senders' histories that pieces cannot be delivered, and returns those of which that is done. The step
-- of a sender that runs would find its claim lost, so such a one is left for later, as is one that another
-- transaction holds.
create or replace function dormouse.note_undelivered(p_ids bigint[], p_reasons text[], p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
    v_place constant bigint := dormouse.feed_place();
    v_senders bigint[];
    v_locked bigint[];
begin
    if cardinality(p_ids) = 0 then
        return '{}';
    end if;
    v_senders := array(select distinct m.sender from dormouse.mail m where m.id = any (p_ids));
    v_locked := array(
        select i.id from dormouse.instances i where i.id = any (v_senders) and i.status <> 'executing'
        order by i.id for no key update skip locked
    );
    with told as materialized (
        select m.id, m.sender, m.seq, m.kind, m.name, m.address, p_reasons[array_position(p_ids, m.id)] as reason,
            row_number() over (partition by m.sender order by m.id) as place
        from dormouse.mail m where m.id = any (p_ids) and m.sender = any (v_locked)
    ), saved as (
        update dormouse.instances i set seq = i.seq + t.pieces, changed_at = p_now
        from (select sender, count(*) as pieces from told group by sender) t
        where i.id = any (array[t.sender])
        returning i.id, i.seq - t.pieces as seq, i.version, i.step, i.keeps_history
    )
    insert into dormouse.history (instance, seq, kind, version, step, at, data, id)
    select s.id, s.seq + t.place, 'mail.undelivered', s.version, s.step, p_now, json_build_object(
            'seq', t.seq, 'mail', dormouse.mail_told(t.kind, t.name, t.address), 'reason', t.reason
        ), dormouse.event_id(v_place)
    from saved s join told t on t.sender = s.id
    where s.keeps_history order by s.id, t.place;
    -- One whose sender is gone has no history to be in.
    return array(
        select m.id from dormouse.mail m
        where m.id = any (p_ids) and (m.sender = any (v_locked) or (
            select true from dormouse.instances i where i.id = m.sender
        ) is null)
    );
end
$$;
