-- Signals that are kept for instances to come, by their key.
--
-- No signal is lost between its keeping and the start of its instance: a start inserts its key and then looks for what
-- is kept; whoever keeps a signal locks the key before it looks for the instance. So one of them waits for the other, and
-- then sees what that left. What is kept for a key is added and removed under the lock of its row in kept_keys, which is
-- taken after the key's.

-- Locks a key until the transaction ends, as a start does: by inserting it. The row is deleted at once, and yet others
-- that insert the key wait, as its insertion is not committed. Returns the instance that holds the key, if there is one;
-- then nothing is locked.
create or replace function dormouse.lock_key(p_namespace text, p_key text) returns bigint
language plpgsql as $$
declare
    v_id bigint;
    v_holder bigint;
begin
    loop
        insert into dormouse.instances (
            id, namespace, machine, version, status, step, seq, queue, priority, runnable_at, keeps_history, key,
            created_at, changed_at, state
        ) values (
            -nextval('dormouse.kept_ids'), p_namespace, '', 0, 'scheduled', '', 0, '', 0, 'epoch', false, p_key,
            'epoch', 'epoch', 'null'
        ) on conflict do nothing returning id into v_id;
        if v_id is not null then
            delete from dormouse.instances where id = v_id;
            return null;
        end if;
        v_holder := dormouse.key_holder(p_namespace, p_key);
        if v_holder is not null then
            return v_holder;
        end if;
        -- Its holder has ended in between.
    end loop;
end
$$;

-- Delivers signals as `dormouse.deliver` does. One whose key no live instance has is kept, if it says for how long:
-- `kept`, until a moment; or `kept_full`, if its namespace has no room. A key that an ended instance holds cannot have
-- another instance: `no_target`.
create or replace function dormouse.keep(
    p_batch json, p_wait_ms integer default null,
    out results text[], out ids bigint[], out wokes boolean[], out until_us bigint[], out effects dormouse.effects
) language plpgsql as $$
declare
    v_now timestamptz;
    v_delivered record;
    v_holder bigint;
    v_namespace text; -- the key that was locked last
    v_key text;
    v_same record;
    v_sum record;
    d record;
begin
    select r.* into v_delivered from dormouse.deliver(p_batch, p_wait_ms) r;
    results := v_delivered.results;
    ids := v_delivered.ids;
    wokes := v_delivered.wokes;
    effects := v_delivered.effects;
    until_us := array_fill(null::bigint, array[cardinality(results)]);
    for d in
        select s.* from json_to_recordset(p_batch) s (
            ord integer, namespace text, key text, name text, payload text, dedup_key text, inbox_max integer,
            inbox_bytes_max bigint, trace text, keep_us bigint, kept_max bigint, kept_bytes_max bigint
        ) where s.key is not null and s.keep_us is not null and results[s.ord] = 'no_target'
        -- In the order in which starts insert their keys.
        order by s.namespace collate "C", s.key collate "C", s.ord
    loop
        v_holder := null;
        if (d.namespace, d.key) is distinct from (v_namespace, v_key) then
            v_holder := dormouse.lock_key(d.namespace, d.key);
        end if;
        if v_holder is null then
            v_namespace := d.namespace;
            v_key := d.key;
            select i.id into v_holder from dormouse.instances i
            where i.id = dormouse.find_key(d.namespace, d.key) and i.status not in ('done', 'failed', 'cancelled');
        end if;
        if v_holder is not null then
            select r.* into v_delivered from dormouse.deliver(json_build_array(json_build_object(
                'ord', 1, 'namespace', d.namespace, 'id', v_holder, 'name', d.name, 'payload', d.payload,
                'dedup_key', d.dedup_key, 'trace', d.trace, 'inbox_max', d.inbox_max, 'inbox_bytes_max', d.inbox_bytes_max
            ))) r;
            results[d.ord] := v_delivered.results[1];
            ids[d.ord] := v_delivered.ids[1];
            wokes[d.ord] := v_delivered.wokes[1];
            effects := dormouse.merge(effects, v_delivered.effects);
            continue;
        end if;
        v_now := dormouse.now();
        select k.id, k.until into v_same from dormouse.kept k
        where k.namespace = d.namespace and k.key = d.key and k.dedup_key = d.dedup_key and k.dedup_key is not null;
        if v_same.until > v_now then
            results[d.ord] := 'duplicate';
            continue;
        elsif v_same.id is not null then
            -- It has expired, and the clock has not come by yet.
            perform from dormouse.kept_keys k where k.namespace = d.namespace and k.key = d.key for update;
            perform dormouse.remove_kept(array[v_same.id]);
        end if;
        select count(*) as rows, coalesce(sum(c.signals), 0) as signals, coalesce(sum(c.bytes), 0) as bytes
        into v_sum from dormouse.kept_counts c where c.namespace = d.namespace;
        if v_sum.signals + 1 > coalesce(d.kept_max, 10000)
            or v_sum.bytes + octet_length(d.payload) > coalesce(d.kept_bytes_max, 16777216) then
            results[d.ord] := 'kept_full';
            continue;
        end if;
        insert into dormouse.kept_keys as k (namespace, key) values (d.namespace, d.key)
        on conflict (namespace, key) do update set key = k.key;
        insert into dormouse.kept (id, namespace, key, name, dedup_key, at, until, trace, payload) values (
            nextval('dormouse.kept_ids'), d.namespace, d.key, d.name, d.dedup_key, v_now,
            v_now + interval '1 microsecond' * d.keep_us, d.trace, d.payload::json
        ) returning id, until into v_same;
        insert into dormouse.kept_counts (namespace, signals, bytes) values (d.namespace, 1, octet_length(d.payload));
        if v_sum.rows > 64 then
            perform dormouse.fold_kept(d.namespace);
        end if;
        results[d.ord] := 'kept';
        ids[d.ord] := v_same.id;
        until_us[d.ord] := (extract(epoch from v_same.until) * 1000000)::bigint;
        effects := dormouse.merge(effects, row(null, v_same.until, null, null)::dormouse.effects);
    end loop;
end
$$;

-- Folds the counts of a namespace into one row. Those that another folds at this moment are left to it.
create or replace function dormouse.fold_kept(p_namespace text) returns void
language plpgsql as $$
begin
    with folded as (
        delete from dormouse.kept_counts where ctid = any (array(
            select c.ctid from dormouse.kept_counts c where c.namespace = p_namespace for update skip locked
        )) returning signals, bytes
    )
    insert into dormouse.kept_counts (namespace, signals, bytes)
    select p_namespace, sum(signals), sum(bytes) from folded having count(*) > 0;
end
$$;

-- Removes kept signals whose keys the caller has locked, and returns them in order.
create or replace function dormouse.remove_kept(p_ids bigint[]) returns dormouse.kept[]
language plpgsql as $$
declare
    v_gone dormouse.kept[];
begin
    with gone as (
        delete from dormouse.kept k where k.id = any (p_ids) returning k.*
    ), counted as (
        insert into dormouse.kept_counts (namespace, signals, bytes)
        select g.namespace, -count(*), -sum(octet_length(g.payload::text)) from gone g group by g.namespace
    )
    select array_agg(g::dormouse.kept order by g.id) into v_gone from gone g;
    delete from dormouse.kept_keys k using (
        select distinct g.namespace, g.key from unnest(v_gone) g
    ) touched
    where k.namespace = any (array[touched.namespace]) and k.key = any (array[touched.key]) and (
        select true from dormouse.kept r where r.namespace = k.namespace and r.key = k.key limit 1
    ) is null;
    return v_gone;
end
$$;

-- Puts what is kept for these keys into the inboxes of the instances that have just taken them. It fits, whatever is
-- else in an inbox: how much may be kept has a bound of its own.
create or replace function dormouse.receive_kept(p_namespaces text[], p_keys text[], p_ids bigint[])
returns dormouse.effects language plpgsql as $$
declare
    v_ids bigint[];
    v_gone dormouse.kept[];
    v_delivered record;
    v_effects dormouse.effects;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        -- What was kept since this transaction began, it cannot see, but it cannot insert the key either.
        insert into dormouse.kept_keys (namespace, key)
        select distinct t.namespace, t.key from unnest(p_namespaces, p_keys) t (namespace, key) order by 1, 2
        on conflict do nothing;
    end if;
    if not exists (select from dormouse.kept_keys) then
        return null;
    end if;
    perform from (
        select distinct t.namespace collate "C" as namespace, t.key collate "C" as key
        from unnest(p_namespaces, p_keys) t (namespace, key) order by 1, 2
    ) taken cross join lateral (
        select true from dormouse.kept_keys k where k.namespace = taken.namespace and k.key = taken.key
        offset 0 for update
    ) locked;
    v_ids := array(
        select k.id from unnest(p_namespaces, p_keys) t (namespace, key) cross join lateral (
            select k.id from dormouse.kept k
            where k.namespace = t.namespace and k.key = t.key and k.until > dormouse.now() offset 0
        ) k
    );
    v_gone := dormouse.remove_kept(v_ids);
    if v_gone is not null then
        select d.effects into v_delivered from dormouse.deliver((
            select json_agg(json_build_object(
                'ord', s.ord, 'namespace', s.namespace, 'id', s.target, 'name', s.name, 'payload', s.payload::text,
                'dedup_key', s.dedup_key, 'trace', s.trace, 'inbox_max', 2147483647, 'inbox_bytes_max', 9223372036854775807
            ) order by s.ord) from (
                select g.*, row_number() over (order by g.id) as ord, (
                    select min(t.id) from unnest(p_namespaces, p_keys, p_ids) t (namespace, key, id)
                    where t.namespace = g.namespace and t.key = g.key
                ) as target
                from unnest(v_gone) g
            ) s
        )) d;
        v_effects := v_delivered.effects;
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        delete from dormouse.kept_keys k using unnest(p_namespaces, p_keys) t (namespace, key)
        where k.namespace = any (array[t.namespace]) and k.key = any (array[t.key]) and (
            select true from dormouse.kept r where r.namespace = k.namespace and r.key = k.key limit 1
        ) is null;
    end if;
    return v_effects;
end
$$;

-- Removes what has expired, by kept_until. A key that another transaction has locked is left for the next time.
create or replace function dormouse.expire_kept(
    p_at timestamptz, p_rows_max integer, out expired integer, out next timestamptz
) language plpgsql as $$
declare
    v_ids bigint[];
begin
    v_ids := array(
        select k.id from dormouse.kept k where k.until <= p_at order by k.until, k.id limit p_rows_max
    );
    expired := 0;
    if v_ids <> '{}' then
        v_ids := array(
            select e.id from (
                select distinct k.namespace, k.key from dormouse.kept k where k.id = any (v_ids)
            ) keys cross join lateral (
                select k.namespace, k.key from dormouse.kept_keys k
                where k.namespace = keys.namespace and k.key = keys.key offset 0 for update skip locked
            ) locked cross join lateral (
                select k.id from dormouse.kept k
                where k.namespace = locked.namespace and k.key = locked.key and k.id = any (v_ids) offset 0
            ) e
        );
        expired := coalesce(cardinality(dormouse.remove_kept(v_ids)), 0);
    end if;
    select case when k.until <= p_at and expired < p_rows_max
        then p_at + interval '50 milliseconds' else k.until end
    into next from dormouse.kept k order by k.until, k.id limit 1;
end
$$;

-- Removes a kept signal, and says whether it was there.
create or replace function dormouse.drop_kept(p_namespace text, p_id bigint) returns boolean
language plpgsql as $$
begin
    perform from dormouse.kept_keys k
    where k.namespace = p_namespace
        and k.key = (select s.key from dormouse.kept s where s.id = p_id and s.namespace = p_namespace) for update;
    if not found then
        return false;
    end if;
    return dormouse.remove_kept(array[p_id]) is not null;
end
$$;
