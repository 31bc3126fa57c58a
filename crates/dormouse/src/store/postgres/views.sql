-- Views of machines in the schema dormouse_views, for SQL and BI tools: one for each machine and one for each of its
-- versions, with a column for each member of the states that its code declares. They are made from dormouse.machines when
-- a worker registers. Names come from users' code: each is quoted, shortened to what an identifier may have, and told apart
-- from others.

-- Where the owner may make no schemas, roles.sql makes it.
do $$
begin
    if to_regnamespace('dormouse_views') is null then
        create schema dormouse_views;
        comment on schema dormouse_views is 'typed views of machines, made by dormouse.make_views()';
    end if;
exception when insufficient_privilege then
    raise notice 'there will be no views of machines: this role may not create the schema dormouse_views';
end
$$;

-- An identifier for a name, other than those that are taken.
create or replace function dormouse.view_identifier(p_name text, p_taken text[]) returns text
language plpgsql immutable as $$
declare
    v_short text := p_name;
    v_found text := p_name;
    v_try integer := 0;
begin
    while octet_length(v_short) > 54 loop
        v_short := left(v_short, -1);
    end loop;
    while v_found = '' or octet_length(v_found) > 63 or v_found = any (p_taken) loop
        v_found := v_short || '_' || left(md5(p_name || repeat('+', v_try)), 8);
        v_try := v_try + 1;
    end loop;
    return v_found;
end
$$;

-- The type of the column for values of an outline; null: nothing is known of it.
create or replace function dormouse.view_type(p_outline json) returns text language plpgsql immutable as $$
declare
    v_outline json := p_outline;
begin
    while v_outline ->> 'kind' = 'optional' loop
        v_outline := v_outline -> 'of';
    end loop;
    return case v_outline ->> 'kind'
        when 'flag' then 'boolean'
        when 'whole' then case
            when (v_outline #>> '{of,min}') is not null and (v_outline #>> '{of,max}')::numeric <= 9223372036854775807
            then 'bigint' else 'numeric'
        end
        when 'number' then 'numeric'
        when 'char' then 'text'
        when 'text' then 'text'
        when 'null' then null
        when 'variants' then case
            when exists (select from json_array_elements(v_outline #> '{of,variants}') v where v -> 'holds' is not null)
            then 'json' else 'text'
        end
        else 'json'
    end;
end
$$;

-- The member of a state as a value of a type. One that is of another kind is null, so that no row makes a query fail.
create or replace function dormouse.view_value(p_field text, p_type text) returns text
language sql immutable as $$
    select case p_type
        when 'boolean' then format(
            'case when json_typeof(i.state -> %1$L) = ''boolean'' then (i.state ->> %1$L)::boolean end', p_field)
        when 'numeric' then format(
            'case when json_typeof(i.state -> %1$L) = ''number'' then (i.state ->> %1$L)::numeric end', p_field)
        when 'bigint' then format(
            'case when json_typeof(i.state -> %1$L) = ''number'' then case when (i.state ->> %1$L)::numeric '
            'between -9223372036854775808 and 9223372036854775807 then trunc((i.state ->> %1$L)::numeric)::bigint end end',
            p_field)
        when 'text' then format(
            'case when json_typeof(i.state -> %1$L) = ''string'' then i.state ->> %1$L end', p_field)
        else format('case when json_typeof(i.state) = ''object'' then i.state -> %1$L end', p_field)
    end
$$;

-- The query of the view of a machine, and of one of its versions if it is given.
create or replace function dormouse.view_query(p_machine text, p_version integer) returns text
language plpgsql stable as $$
declare
    -- The names that every view has.
    v_taken text[] := '{id,namespace,key,version,status,step,seq,attempt,queue,priority,paused,parent,tags,trace,last_error,created_at,changed_at,ended_at,wake_at,state,output}';
    v_columns text := '';
    v_column text;
    f record;
begin
    for f in
        select s.field, case
            when count(distinct s.type) = 1 then min(s.type)
            when bool_and(s.type in ('bigint', 'numeric')) then 'numeric'
            else 'json'
        end as type
        from (
            select member.value ->> 'name' as field, dormouse.view_type(member.value -> 'outline') as type,
                row_number() over (order by m.version, stated.place, member.place) as place
            from dormouse.machines m
            cross join lateral json_array_elements(m.told -> 'states') with ordinality stated (value, place)
            cross join lateral json_array_elements(stated.value #> '{outline,of,members}') with ordinality member (value, place)
            where m.name = p_machine and (p_version is null or m.version = p_version)
                and stated.value #>> '{outline,kind}' = 'object'
        ) s
        group by s.field order by min(s.place) limit 1000
    loop
        v_column := dormouse.view_identifier(
            case when f.field = any (v_taken) then 'state_' || f.field else f.field end, v_taken
        );
        v_taken := v_taken || v_column;
        v_columns := v_columns || format(', %s as %I', dormouse.view_value(f.field, f.type), v_column);
    end loop;
    return format(
        'select i.id, i.namespace, i.key, i.version, i.status, i.step, i.seq, i.attempt, i.queue, i.priority, i.paused, '
        'i.parent, i.tags, i.trace, i.last_error, i.created_at, i.changed_at, i.ended_at, i.wake_at, i.state, i.output%s '
        'from dormouse.instances i where i.machine = %L%s',
        v_columns, p_machine, case when p_version is not null then format(' and i.version = %s', p_version) else '' end
    );
end
$$;

-- Makes the views that are missing or out of date, and returns what became of each: `made`, `there`, `kept` (another
-- object depends on the old one: drop that, and call it again), `busy` (somebody reads it: call it again).
--
-- It runs with its owner's rights, so that a worker's role needs none in the schema. A view that is as it should be is
-- not touched, and nothing here waits for a reader longer than a moment.
create or replace function dormouse.make_views() returns table (view text, machine text, version integer, result text)
language plpgsql security definer set search_path = dormouse, pg_temp set lock_timeout = '250ms' as $$
declare
    m record;
    v_query text;
    v_note text;
    v_name text;
    v_others text[];
begin
    if to_regnamespace('dormouse_views') is null or not has_schema_privilege('dormouse_views', 'CREATE') then
        raise exception using errcode = 'insufficient_privilege',
            message = 'the schema dormouse_views is missing, or its owner is not the owner of the schema dormouse',
            hint = 'Run `dormouse migrate` with a role that may create schemas, or the script of `dormouse migrate --roles`.';
    end if;
    perform pg_advisory_xact_lock(1685025393);
    for m in
        select d.name, null::integer as version from dormouse.machines d where d.told is not null
        group by d.name
        union all
        select d.name, d.version from dormouse.machines d where d.told is not null
        order by 1, 2 nulls first
    loop
        v_query := dormouse.view_query(m.name, m.version);
        v_note := json_build_object('machine', m.name, 'version', m.version)::text;
        -- Whoever has a name keeps it, so that a machine that comes later takes no view away from its readers.
        select array_agg(c.relname::text) into v_others from pg_class c
        where c.relnamespace = 'dormouse_views'::regnamespace
            and coalesce(split_part(obj_description(c.oid, 'pg_class'), e'\n', 1), '') <> v_note;
        select c.relname into v_name from pg_class c
        where c.relnamespace = 'dormouse_views'::regnamespace and c.relkind = 'v'
            and split_part(obj_description(c.oid, 'pg_class'), e'\n', 1) = v_note
        order by c.relname limit 1;
        view := coalesce(v_name, dormouse.view_identifier(m.name || coalesce('_v' || m.version, ''), v_others));
        machine := m.name;
        version := m.version;
        result := 'there';
        if v_name is null or obj_description(format('dormouse_views.%I', v_name)::regclass, 'pg_class')
            is distinct from v_note || e'\n' || md5(v_query) then
            result := dormouse.make_view(view, v_query, v_note || e'\n' || md5(v_query));
        end if;
        return next;
    end loop;
end
$$;

create or replace function dormouse.make_view(p_name text, p_query text, p_note text) returns text
language plpgsql as $$
begin
    begin
        execute format('create or replace view dormouse_views.%I as %s', p_name, p_query);
    exception when invalid_table_definition then
        -- Columns were removed or changed.
        execute format('drop view dormouse_views.%I', p_name);
        execute format('create view dormouse_views.%I as %s', p_name, p_query);
    end;
    execute format('comment on view dormouse_views.%I is %L', p_name, p_note);
    if to_regrole('dormouse_read') is not null then
        execute format('grant select on dormouse_views.%I to dormouse_read', p_name);
    end if;
    return 'made';
exception
    when dependent_objects_still_exist then
        return 'kept';
    when lock_not_available then
        return 'busy';
end
$$;
