-- What machines declare, held against what SQL sends them: a door without the code goes by the declaration, as others do.

-- What the machine that runs instances of this name and version declares: of those that can, the one whose worker
-- registered last; of one worker's, that version itself, or else the newest.
create or replace function dormouse.declaration(p_machine text, p_version integer) returns json
language plpgsql stable as $$
begin
    return (
        select m.told from dormouse.machines m
        where m.name = p_machine and m.told is not null and p_version between m.migrates_from and m.version
        order by m.declared_at desc, (m.version = p_version) desc, m.version desc limit 1
    );
end
$$;

-- Says why a value does not fit an outline, and where; null if it fits. What an outline of a later kind asks for is let
-- through.
create or replace function dormouse.misfit(p_outline json, p_value json, p_place text) returns text
language plpgsql immutable as $$
declare
    v_of constant json := p_outline -> 'of';
    v_type constant text := json_typeof(p_value);
    v_text constant text := p_value #>> '{}';
    v_held json;
    v_name text;
    v_item json;
    v_misfit text;
    v_fits boolean;
begin
    case p_outline ->> 'kind'
    when 'null' then v_fits := v_type = 'null';
    when 'flag' then v_fits := v_type = 'boolean';
    when 'number' then v_fits := v_type = 'number';
    when 'text' then v_fits := v_type = 'string';
    when 'char' then v_fits := v_type = 'string' and char_length(v_text) = 1;
    when 'whole' then
        v_fits := v_type = 'number' and (v_of ->> 'max' is null or v_text ~ '^-?[0-9]+$');
        if v_fits and v_text ~ '^-?[0-9]+$' then
            v_fits := coalesce(v_text::numeric >= (v_of ->> 'min')::numeric, true)
                and coalesce(v_text::numeric <= (v_of ->> 'max')::numeric, true);
        end if;
    when 'optional' then
        return case when v_type <> 'null' then dormouse.misfit(v_of, p_value, p_place) end;
    when 'one_or_many' then
        v_misfit := dormouse.misfit(v_of, p_value, p_place);
        if v_misfit is null or v_type <> 'array' then
            return v_misfit;
        end if;
        return dormouse.misfit(json_build_object('kind', 'list', 'of', v_of), p_value, p_place);
    when 'list', 'tuple' then
        v_fits := v_type = 'array';
        if v_fits and p_outline ->> 'kind' = 'tuple' then
            v_fits := json_array_length(p_value) = json_array_length(v_of);
        end if;
        for i in 0 .. case when v_fits then json_array_length(p_value) - 1 else -1 end loop
            v_item := case when p_outline ->> 'kind' = 'tuple' then v_of -> i else v_of end;
            v_misfit := dormouse.misfit(v_item, p_value -> i, format('%s[%s]', p_place, i));
            exit when v_misfit is not null;
        end loop;
    when 'map' then
        v_fits := v_type = 'object';
        for v_name, v_item in select * from json_each(case when v_fits then p_value else '{}' end) loop
            v_misfit := dormouse.misfit(v_of, v_item, concat_ws('.', nullif(p_place, ''), v_name));
            exit when v_misfit is not null;
        end loop;
    when 'object' then
        v_fits := v_type = 'object';
        for v_name, v_item in select * from json_each(case when v_fits then p_value else '{}' end) loop
            select m into v_held from json_array_elements(v_of -> 'members') m where m ->> 'name' = v_name limit 1;
            if v_held is not null then
                v_misfit := dormouse.misfit(
                    v_held -> 'outline', v_item, concat_ws('.', nullif(p_place, ''), v_name));
            elsif not (v_of ->> 'open')::boolean then
                v_misfit := format('unknown member %L', left(v_name, 64));
            end if;
            exit when v_misfit is not null;
        end loop;
        if v_fits and v_misfit is null then
            select format('missing member %L%s', m ->> 'name', ' at ' || nullif(p_place, '')) into v_misfit
            from json_array_elements(v_of -> 'members') m
            where (m ->> 'required')::boolean and not exists (
                select from json_object_keys(p_value) k (name)
                where k.name = m ->> 'name'
                    or k.name in (select json_array_elements_text(coalesce(m -> 'aliases', '[]')))
            ) limit 1;
        end if;
    when 'variants' then
        v_fits := v_type = 'string' or v_type = 'object' and (select count(*) = 1 from json_object_keys(p_value));
        if v_fits then
            v_name := case when v_type = 'string' then v_text else (select k from json_object_keys(p_value) k) end;
            select v into v_held from json_array_elements(v_of -> 'variants') v where v ->> 'name' = v_name limit 1;
            if v_held is null then
                v_fits := (v_of ->> 'open')::boolean;
            elsif v_type = 'string' then
                v_fits := v_held -> 'holds' is null;
            else
                v_misfit := dormouse.misfit(
                    coalesce(v_held -> 'holds', '{"kind": "null"}'), p_value -> v_name,
                    concat_ws('.', nullif(p_place, ''), v_name));
            end if;
        end if;
    when 'one_of' then
        v_fits := case v_type when 'boolean' then 'flag' when 'string' then 'text' when 'array' then 'list' else v_type end
            in (select json_array_elements_text(v_of -> 'kinds'));
        if v_fits and v_type = 'object' and v_of ->> 'member' is not null
            and v_of ->> 'member' not in (select json_object_keys(p_value)) then
            v_misfit := format('missing member %L%s', v_of ->> 'member', ' at ' || nullif(p_place, ''));
        end if;
    else
        return null;
    end case;
    return case
        when v_misfit is not null then v_misfit
        when not v_fits then
            format('%s does not fit: %s is expected', coalesce(nullif(p_place, ''), 'the document'),
                replace(p_outline ->> 'kind', '_', ' '))
    end;
end
$$;

-- Says why a value does not fit a JSON Schema, and where; null if it fits. It knows the keywords that are most used, and
-- lets through what others ask for: it refuses only what a whole validator refuses too.
create or replace function dormouse.schema_misfit(p_schema json, p_value json, p_place text) returns text
language plpgsql immutable as $$
declare
    v_type constant text := json_typeof(p_value);
    -- One with an exponent is let through.
    v_number constant numeric := case when json_typeof(p_value) = 'number'
        and p_value #>> '{}' ~ '^-?[0-9]{1,100}(\.[0-9]{1,100})?$' then (p_value #>> '{}')::numeric end;
    v_length constant integer := case when json_typeof(p_value) = 'string' then char_length(p_value #>> '{}') end;
    v_types text[];
    v_name text;
    v_schema json;
    v_misfit text;
begin
    -- Beside a reference, other keywords do not count in every draft.
    if json_typeof(p_schema) <> 'object' or p_schema -> '$ref' is not null then
        return null;
    end if;
    v_types := case json_typeof(p_schema -> 'type') when 'string' then array[p_schema ->> 'type']
        when 'array' then array(select json_array_elements_text(p_schema -> 'type')) end;
    v_misfit := case
        when v_type <> all (v_types)
            and not ('integer' = any (v_types) and v_type = 'number' and coalesce(v_number % 1 = 0, true)) then 'type'
        when p_schema -> 'const' is not null and (p_schema -> 'const')::jsonb <> p_value::jsonb then 'const'
        when json_typeof(p_schema -> 'enum') = 'array' and not (p_schema -> 'enum')::jsonb @> jsonb_build_array(p_value)
            and v_type in ('string', 'number', 'boolean', 'null') then 'enum'
        when v_number < dormouse.schema_bound(p_schema, 'minimum') then 'minimum'
        when v_number > dormouse.schema_bound(p_schema, 'maximum') then 'maximum'
        when v_number <= dormouse.schema_bound(p_schema, 'exclusiveMinimum') then 'exclusiveMinimum'
        when v_number >= dormouse.schema_bound(p_schema, 'exclusiveMaximum') then 'exclusiveMaximum'
        when v_length < dormouse.schema_bound(p_schema, 'minLength') then 'minLength'
        when v_length > dormouse.schema_bound(p_schema, 'maxLength') then 'maxLength'
    end;
    if v_misfit is not null then
        return format('%s does not fit the keyword %L of its schema', coalesce(nullif(p_place, ''), 'the document'), v_misfit);
    end if;
    if v_type = 'object' and json_typeof(p_schema -> 'required') = 'array' then
        select format('missing member %L%s', r, ' at ' || nullif(p_place, '')) into v_misfit
        from json_array_elements_text(p_schema -> 'required') r
        where r not in (select json_object_keys(p_value)) limit 1;
    end if;
    if v_misfit is null and v_type = 'object' and json_typeof(p_schema -> 'properties') = 'object' then
        for v_name, v_schema in select * from json_each(p_schema -> 'properties') loop
            exit when v_misfit is not null;
            v_misfit := dormouse.schema_misfit(
                v_schema, p_value -> v_name, concat_ws('.', nullif(p_place, ''), v_name));
        end loop;
    elsif v_misfit is null and v_type = 'array' and json_typeof(p_schema -> 'items') = 'object'
        and p_schema -> 'prefixItems' is null then
        for i in 0 .. json_array_length(p_value) - 1 loop
            exit when v_misfit is not null;
            v_misfit := dormouse.schema_misfit(p_schema -> 'items', p_value -> i, format('%s[%s]', p_place, i));
        end loop;
    end if;
    return v_misfit;
end
$$;

-- The number that a keyword of a schema gives as a bound, if it does.
create or replace function dormouse.schema_bound(p_schema json, p_keyword text) returns numeric
language sql immutable as $$
    select case when json_typeof(p_schema -> p_keyword) = 'number' then (p_schema ->> p_keyword)::numeric end
$$;

-- Refuses a signal that its target's machine does not declare though it names those it takes, or whose payload it could
-- not read. What the instance awaits is declared by that.
create or replace function dormouse.check_signal(
    p_namespace text, p_id bigint, p_key text, p_name text, p_payload json
) returns void language plpgsql stable as $$
declare
    i dormouse.instances;
    v_told json;
    v_accepted json;
    v_misfit text;
begin
    select * into i from dormouse.instances o where o.id = dormouse.find(p_namespace, p_id, p_key);
    v_told := dormouse.declaration(i.machine, i.version);
    select a into v_accepted from json_array_elements(coalesce(v_told -> 'accepts', '[]')) a
    where p_name in (a ->> 'signal', a ->> 'also') limit 1;
    if v_accepted is null and not coalesce((v_told ->> 'accepts_others')::boolean, true)
        and p_name <> all (coalesce(i.awaits, '{}')) then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('machine %L takes no signal %L', i.machine, p_name),
            hint = format('It takes %s.', coalesce((
                select string_agg(distinct a ->> 'signal', ', ')
                from json_array_elements(coalesce(v_told -> 'accepts', '[]')) a
            ), 'none'));
    end if;
    v_misfit := coalesce(
        dormouse.misfit(v_accepted -> 'outline', coalesce(p_payload, 'null'), ''),
        dormouse.schema_misfit(v_accepted -> 'schema', coalesce(p_payload, 'null'), ''));
    if v_misfit is not null then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('the payload of signal %L is refused by machine %L: %s', p_name, i.machine, v_misfit);
    end if;
end
$$;

-- Refuses a state that the machine's step could not read.
create or replace function dormouse.check_state(p_told json, p_step text, p_state json) returns void
language plpgsql immutable as $$
declare
    v_misfit text;
begin
    select dormouse.misfit(s -> 'outline', coalesce(p_state, 'null'), '') into v_misfit
    from json_array_elements(coalesce(p_told -> 'states', '[]')) s
    where p_step in (select json_array_elements_text(s -> 'steps')) limit 1;
    if v_misfit is not null then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('machine %L cannot run from there: the state of step %s: %s', p_told ->> 'name', p_step,
                v_misfit);
    end if;
end
$$;
