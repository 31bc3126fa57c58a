-- Asks whether a repeatable request was sent before: `new` (and now under way), `answered`, `under_way` or `different`.
create or replace function dormouse.admit(
    p_namespace text, p_key text, p_fingerprint bytea, p_kept_us bigint, p_given_up_us bigint,
    out admission text, out status integer, out body text
) language plpgsql as $$
declare
    v_now constant timestamptz := dormouse.now();
    v_known dormouse.answers;
begin
    loop
        -- In the place of one that is forgotten, or whose server died.
        insert into dormouse.answers as a (namespace, key, fingerprint, at)
        values (p_namespace, p_key, p_fingerprint, v_now)
        on conflict (namespace, key) do update
            set fingerprint = excluded.fingerprint, at = excluded.at, status = null, body = null
            where a.at <= v_now - p_kept_us * interval '1 microsecond'
                or (a.status is null and a.at <= v_now - p_given_up_us * interval '1 microsecond');
        if found then
            admission := 'new';
            return;
        end if;
        select * into v_known from dormouse.answers a where a.namespace = p_namespace and a.key = p_key;
        -- It may have been tidied away between the two.
        exit when found;
    end loop;
    admission := case
        when v_known.fingerprint <> p_fingerprint then 'different'
        when v_known.status is null then 'under_way'
        else 'answered'
    end;
    status := v_known.status;
    body := v_known.body;
end
$$;

-- Removes kept answers and entries of the audit log that are past their time: by answers_at, and by the primary key of
-- the audit log, whose entries are in the order of time.
create or replace function dormouse.tidy(p_answers_us bigint, p_audit_us bigint, p_rows_max integer) returns integer
language plpgsql as $$
declare
    v_now constant timestamptz := dormouse.now();
    v_answers integer;
    v_audit integer;
begin
    perform set_config('synchronous_commit', 'off', true);
    delete from dormouse.answers where ctid = any (array(
        select ctid from dormouse.answers where at < v_now - p_answers_us * interval '1 microsecond'
        order by at limit p_rows_max for update skip locked
    ));
    get diagnostics v_answers = row_count;
    delete from dormouse.audit where id = any (array(
        select id from (select id, at from dormouse.audit order by id limit p_rows_max) old
        where at < v_now - p_audit_us * interval '1 microsecond'
    ));
    get diagnostics v_audit = row_count;
    return v_answers + v_audit;
end
$$;
