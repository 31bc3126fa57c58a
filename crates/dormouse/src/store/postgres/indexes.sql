-- Keeps the indexed fields of one instance, by the primary key of fields. Called by triggers, only for machines that
-- declare indexes. A value that the database cannot hold is not indexed, rather than that its instance fails.
create or replace function dormouse.index_state() returns trigger language plpgsql as $$
begin
    begin
        insert into dormouse.fields as f (instance, field, namespace, machine, number, text)
        select new.id, x.field, new.namespace, new.machine,
            case when x.kind = 'number' then (new.state #>> x.path)::numeric end,
            case when x.kind <> 'number' then left(new.state #>> x.path, 200) end
        from (
            select i.field, i.path, json_typeof(new.state #> i.path) as kind
            from dormouse.indexes i where i.machine = new.machine
        ) x
        where x.kind in ('number', 'string', 'boolean')
        on conflict (instance, field) do update set number = excluded.number, text = excluded.text
        where f.number is distinct from excluded.number or f.text is distinct from excluded.text;
        if tg_op = 'UPDATE' then
            delete from dormouse.fields f where f.instance = new.id and f.field = any (array(
                select i.field from dormouse.indexes i
                where i.machine = new.machine
                    and coalesce(json_typeof(new.state #> i.path), 'null') not in ('number', 'string', 'boolean')
            ));
        end if;
    exception when data_exception or program_limit_exceeded then
        delete from dormouse.fields f where f.instance = new.id;
    end;
    return null;
end
$$;

create or replace function dormouse.unindex_state() returns trigger language plpgsql as $$
begin
    delete from dormouse.fields f where f.instance = old.id;
    return null;
end
$$;

-- Whether a field of a state compares with a value in this way. One of another type does not, nor one that is not there.
create or replace function dormouse.holds(
    p_state json, p_path text[], p_compare text, p_kind text, p_value text
) returns boolean language plpgsql immutable as $$
declare
    v_text text;
    v_order integer;
begin
    if json_typeof(p_state #> p_path) is distinct from p_kind then
        return false;
    end if;
    v_text := p_state #>> p_path;
    if p_kind = 'number' then
        v_order := case
            when v_text::numeric < p_value::numeric then -1 when v_text::numeric > p_value::numeric then 1 else 0
        end;
    else
        v_order := case
            when v_text collate "C" < p_value then -1 when v_text collate "C" > p_value then 1 else 0
        end;
    end if;
    return case p_compare
        when '=' then v_order = 0 when '!=' then v_order <> 0 when '<' then v_order < 0 when '<=' then v_order <= 0
        when '>' then v_order > 0 when '>=' then v_order >= 0
    end;
exception when data_exception then
    return false;
end
$$;
