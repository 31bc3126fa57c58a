-- For any program in any language, inside its own transaction: what it starts, signals or cancels here happens if and
-- only if that transaction commits. Granted apart from everything else, and run with the owner's rights, so that a
-- caller needs no right to any table.

-- Refuses a name that is empty, too long, or holds control characters.
create or replace function dormouse.check_name(p_what text, p_name text) returns void
language plpgsql immutable as $$
begin
    if p_name is null then
        return;
    elsif p_name = '' or octet_length(p_name) > 255 or p_name ~ '[[:cntrl:]]' then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('the %s %L is refused', p_what, left(p_name, 64)),
            hint = 'It must have 1 to 255 bytes and no control characters.';
    end if;
end
$$;

-- Refuses more than 8 tags, or one that is empty, too long, or holds control characters.
create or replace function dormouse.check_tags(p_tags text[]) returns void
language plpgsql immutable as $$
begin
    perform dormouse.check_name('tag', t.tag) from unnest(p_tags) t (tag);
    if exists (select from unnest(p_tags) t (tag) where t.tag is null or octet_length(t.tag) > 64)
        or (select count(distinct t.tag) from unnest(p_tags) t (tag)) > 8 then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('the tags %s are refused', left(p_tags::text, 200)),
            hint = 'An instance has at most 8 tags of 1 to 64 bytes.';
    end if;
end
$$;

-- Refuses a document over 1 MiB or more than 64 deep, or one that no worker could hand on: with U+0000, with half of a
-- surrogate pair, or with a number that no 64-bit float holds. As `Limits::check_document` does.
create or replace function dormouse.check_document(p_what text, p_document json) returns void
language plpgsql immutable as $$
declare
    -- Without escaped backslashes, every backslash is the start of an escape.
    v_text text := replace(p_document::text, '\\', ' ');
    v_number text;
    v_is_huge boolean;
begin
    if octet_length(p_document::text) > 1048576 then
        raise exception using errcode = 'program_limit_exceeded',
            message = format('the %s is %s bytes of JSON and the limit is 1048576',
                p_what, octet_length(p_document::text)),
            hint = 'Store the bulk elsewhere and keep a reference.';
    elsif strpos(v_text, '\u0000') > 0 then
        raise exception using errcode = 'untranslatable_character',
            message = format('the %s holds U+0000, which cannot be stored', p_what),
            hint = 'Leave the character out, or encode what it stands for.';
    elsif v_text ~* '\\ud[89a-f]' and regexp_replace(
        v_text, '\\u[dD][89abAB][[:xdigit:]]{2}\\u[dD][c-fC-F][[:xdigit:]]{2}', '', 'g'
    ) ~* '\\ud[89a-f]' then
        raise exception using errcode = 'untranslatable_character',
            message = format('the %s holds half of a surrogate pair, which is no character', p_what),
            hint = 'Leave it out, or encode what it stands for.';
    end if;
    -- Without its texts, brackets are brackets, and digits are numbers.
    if dormouse.brackets(v_text) > 64 or v_text ~ '\d[eE]|\d{200}' then
        v_text := regexp_replace(replace(v_text, '\"', ''), '"[^"]*"', '', 'g');
        if dormouse.is_deeper(v_text, 64) then
            raise exception using errcode = 'program_limit_exceeded',
                message = format('the %s has more than 64 objects and arrays inside each other', p_what),
                hint = 'Flatten it.';
        elsif dormouse.holds_huge_number(v_text) then
            raise exception using errcode = 'numeric_value_out_of_range',
                message = format('the %s holds a number beyond what a 64-bit float holds', p_what),
                hint = 'Send it as a text.';
        end if;
    end if;
end
$$;

-- Whether a JSON text without its strings holds a number beyond what a 64-bit float holds.
create or replace function dormouse.holds_huge_number(p_text text) returns boolean language sql immutable as $$
    select exists (
        select from regexp_matches(p_text, '(\d+(?:\.\d+)?)(?:[eE]\+?0*(\d+))?', 'g') m
        where (length(m[1]) > 200 or length(m[2]) > 2)
            and case when length(m[2]) > 4 or length(m[1]) > 4000 then true
                else (m[1] || 'e' || coalesce(m[2], '0'))::numeric > 1.797693134862315807e308::numeric end
    )
$$;

-- How many objects and arrays are opened in a text.
create or replace function dormouse.brackets(p_text text) returns integer language sql immutable as $$
    select length(p_text) - length(translate(p_text, '[{', ''))
$$;

-- Whether more objects and arrays are inside each other than this, in a JSON text without its strings. Each pass takes
-- away those that hold no other.
create or replace function dormouse.is_deeper(p_text text, p_depth integer) returns boolean
language plpgsql immutable as $$
declare
    v_brackets text := translate(regexp_replace(p_text, '[^][{}]', '', 'g'), '{}', '[]');
begin
    for pass in 1..p_depth loop
        exit when v_brackets = '';
        v_brackets := replace(v_brackets, '[]', '');
    end loop;
    return v_brackets <> '';
end
$$;

-- Pokes whoever listens, when the transaction commits. A payload has at most 8,000 bytes: what does not fit is found by
-- polling.
create or replace function dormouse.poke(p_effects dormouse.effects) returns void
language plpgsql as $$
begin
    perform pg_notify('dormouse', json_strip_nulls(json_build_object(
        'from', 0, 'queues', p_effects.queues[1:5], 'wake_at', p_effects.wake_at,
        'ended', p_effects.ended[1:100], 'cancel', p_effects.cancel[1:50]
    ))::text)
    where p_effects.queues is not null or p_effects.wake_at is not null or p_effects.ended is not null
        or p_effects.cancel is not null;
end
$$;

-- Refuses a trace that is not written as the header `traceparent` of version 00.
create or replace function dormouse.check_trace(p_trace text) returns void
language plpgsql immutable as $$
begin
    if p_trace !~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' or p_trace ~ '^00-0{32}-|-0{16}-' then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('the trace %L is refused', left(p_trace, 64)),
            hint = 'It is written as in the header traceparent: 00-<32 hexadecimal digits>-<16>-<2>.';
    end if;
end
$$;

-- Starts an instance of a machine, and returns its id. Step, version and queue are those that its workers declared,
-- unless given.
create or replace function dormouse.start(
    machine text, state json default 'null', key text default null, step text default null,
    version integer default null, queue text default null, priority integer default 0, lane text default null,
    start_at timestamptz default null, namespace text default 'default', tags text[] default null,
    even_if_unknown boolean default false, share text default null, trace text default null
) returns bigint language plpgsql security definer set search_path = dormouse, pg_temp as $$
declare
    v_declared dormouse.machines;
    v_inserted record;
begin
    perform dormouse.check_name('machine', start.machine), dormouse.check_name('key', start.key),
        dormouse.check_name('step', start.step), dormouse.check_name('queue', start.queue),
        dormouse.check_name('lane', start.lane), dormouse.check_name('share', start.share), dormouse.check_name('namespace', start.namespace),
        dormouse.check_tags(start.tags), dormouse.check_document('state', start.state), dormouse.check_trace(start.trace);
    if start.version < 0 then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('the version %s is refused', start.version), hint = 'It must be 0 or more.';
    end if;
    select * into v_declared from dormouse.machines m
    where m.name = start.machine and (start.version is null or m.version = start.version)
    order by m.version desc limit 1;
    if v_declared.name is null and (start.step is null or start.version is null) then
        raise exception using errcode = 'undefined_object',
            message = format('no worker has registered a machine %L%s', start.machine,
                coalesce(' of version ' || start.version, '')),
            hint = 'Start a worker that runs it first, or give step and version, and even_if_unknown => true.';
    elsif v_declared.name is null and not start.even_if_unknown
        and not exists (select from dormouse.machines m where m.name = start.machine) then
        raise exception using errcode = 'undefined_object',
            message = format('no worker has declared a machine %L', start.machine),
            hint = format('Declared are: %s. To start it all the same: even_if_unknown => true.', coalesce((
                select string_agg(distinct known.name, ', ') from (
                    select m.name from dormouse.machines m order by m.name limit 20
                ) known
            ), 'none'));
    elsif start.step is not null and v_declared.name is not null and v_declared.steps <> '{}'
        and start.step <> all (v_declared.steps) then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('machine %L has no step %L', start.machine, start.step),
            hint = format('Its steps are %s.', array_to_string(v_declared.steps, ', '));
    elsif start.step is null and v_declared.steps = '{}' then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('machine %L does not declare its steps', start.machine), hint = 'Give the step.';
    end if;
    perform dormouse.check_state(v_declared.told, coalesce(start.step, v_declared.steps[1]), start.state);
    select i.ids, i.holders, i.effects into v_inserted from dormouse.insert(json_build_array(json_build_object(
        'ord', 1, 'namespace', start.namespace, 'machine', start.machine,
        'version', coalesce(start.version, v_declared.version), 'step', coalesce(start.step, v_declared.steps[1]),
        'state', coalesce(start.state, 'null')::text,
        'queue', coalesce(start.queue, v_declared.queue, 'default'), 'priority', start.priority,
        'lane', start.lane, 'key', start.key, 'keeps', coalesce(v_declared.keeps_history, true),
        'share', start.namespace || e'\x01' || nullif(start.share, start.namespace), 'trace', start.trace,
        'at_us', (extract(epoch from start.start_at) * 1000000)::bigint,
        'tags', nullif(array(select distinct t.tag collate "C" from unnest(start.tags) t (tag) order by 1), '{}')
    ))) i;
    if v_inserted.holders[1] is not null then
        raise exception using errcode = 'unique_violation',
            message = format('the key %L is taken by instance %s', start.key, v_inserted.holders[1]),
            detail = v_inserted.holders[1]::text;
    end if;
    perform dormouse.poke(v_inserted.effects);
    return v_inserted.ids[1];
end
$$;

-- Delivers a signal, and returns `accepted` or `duplicate`; or `kept`, for an instance to come. A target that is unknown
-- or has ended is an error, unless the signal is to be kept.
create or replace function dormouse.signal_one(
    p_namespace text, p_id bigint, p_key text, p_name text, p_payload json, p_dedup_key text, p_trace text,
    p_keep_for interval default null
) returns text language plpgsql as $$
declare
    v_sent json;
    v_delivered record;
begin
    perform dormouse.check_name('key', p_key), dormouse.check_name('signal name', p_name),
        dormouse.check_name('dedup key', p_dedup_key), dormouse.check_name('namespace', p_namespace),
        dormouse.check_document('payload', p_payload), dormouse.check_trace(p_trace);
    if p_keep_for <= interval '0' or p_keep_for > interval '366 days' then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('a signal cannot be kept for %s', p_keep_for),
            hint = 'Keep it for more than no time, and for 366 days at most.';
    end if;
    perform dormouse.check_signal(p_namespace, p_id, p_key, p_name, p_payload);
    v_sent := json_build_array(json_build_object(
        'ord', 1, 'namespace', p_namespace, 'id', p_id, 'key', p_key, 'name', p_name,
        'payload', coalesce(p_payload, 'null')::text, 'dedup_key', p_dedup_key, 'trace', p_trace,
        'keep_us', (extract(epoch from p_keep_for) * 1000000)::bigint
    ));
    if p_keep_for is null then
        select d.results, d.effects into v_delivered from dormouse.deliver(v_sent) d;
    else
        select d.results, d.effects into v_delivered from dormouse.keep(v_sent) d;
    end if;
    if v_delivered.results[1] = 'no_target' then
        raise exception using errcode = 'no_data_found',
            message = format('no live instance %s to signal: it is unknown or has ended',
                coalesce(p_id::text, format('with key %L', p_key)));
    elsif v_delivered.results[1] = 'inbox_full' then
        raise exception using errcode = 'configuration_limit_exceeded',
            message = format('the inbox of instance %s is full', coalesce(p_id::text, format('with key %L', p_key))),
            hint = 'It holds 10000 signals, or 16 MiB of them: let it run, or drop some of them.';
    elsif v_delivered.results[1] = 'kept_full' then
        raise exception using errcode = 'configuration_limit_exceeded',
            message = format('no more signals can be kept in the namespace %L', p_namespace),
            hint = 'It keeps 10000 signals, or 16 MiB of them: start their instances, or drop some of them.';
    end if;
    perform dormouse.poke(v_delivered.effects);
    return v_delivered.results[1];
end
$$;

create or replace function dormouse.signal(
    key text, name text, payload json default 'null', dedup_key text default null,
    namespace text default 'default', trace text default null, keep_for interval default null
) returns text language sql security definer set search_path = dormouse, pg_temp as $$
    select dormouse.signal_one(namespace, null, key, name, payload, dedup_key, trace, keep_for)
$$;

create or replace function dormouse.signal(
    id bigint, name text, payload json default 'null', dedup_key text default null,
    namespace text default 'default', trace text default null
) returns text language sql security definer set search_path = dormouse, pg_temp as $$
    select dormouse.signal_one(namespace, id, null, name, payload, dedup_key, trace)
$$;

-- Refuses a reason that is empty, too long, or holds control characters other than line breaks and tabs.
create or replace function dormouse.check_reason(p_reason text) returns void
language plpgsql immutable as $$
begin
    if p_reason !~ '\S' or octet_length(p_reason) > 1024
        or translate(p_reason, e'\n\r\t', '') ~ '[[:cntrl:]]' then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('the reason %L is refused', left(p_reason, 64)),
            hint = 'It must have 1 to 1024 bytes and no control characters but line breaks and tabs.';
    end if;
end
$$;

-- Cancels an instance, and returns `cancelled`, or `requested` if a step of it is running: it is cancelled when that
-- ends. One that has ended is left as it is, and its status returned; one that is unknown, or not at the seq at which
-- it is expected, is an error.
create or replace function dormouse.cancel_target(
    p_namespace text, p_id bigint, p_key text, p_reason text, p_expected_seq bigint
) returns text
language plpgsql as $$
declare
    v_cancelled record;
begin
    perform dormouse.check_reason(p_reason);
    select c.id, c.answer, c.status, c.seq, c.effects into v_cancelled
    from dormouse.cancel_one(p_namespace, p_id, p_key, p_reason, p_expected_seq) c;
    if v_cancelled.answer = 'not_found' then
        raise exception using errcode = 'no_data_found',
            message = format('there is no instance %s', coalesce(p_id::text, format('with key %L', p_key)));
    elsif v_cancelled.answer = 'stale_seq' then
        raise exception using errcode = 'object_not_in_prerequisite_state',
            message = format('instance %s is at seq %s and not at %s', v_cancelled.id, v_cancelled.seq, p_expected_seq),
            detail = v_cancelled.seq::text, hint = 'It moved in between: look at it again.';
    end if;
    perform dormouse.poke(v_cancelled.effects);
    return case when v_cancelled.answer = 'ended' then v_cancelled.status else v_cancelled.answer end;
end
$$;

create or replace function dormouse.cancel(
    key text, namespace text default 'default', reason text default null, expected_seq bigint default null
) returns text
language sql security definer set search_path = dormouse, pg_temp as $$
    select dormouse.cancel_target(namespace, null, key, reason, expected_seq)
$$;

create or replace function dormouse.cancel(
    id bigint, namespace text default 'default', reason text default null, expected_seq bigint default null
) returns text
language sql security definer set search_path = dormouse, pg_temp as $$
    select dormouse.cancel_target(namespace, id, null, reason, expected_seq)
$$;

-- Nobody but the owner runs any of this unless told so.
revoke execute on all functions in schema dormouse from public;
