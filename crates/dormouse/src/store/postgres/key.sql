-- A function that reads a table is in PL/pgSQL, here and elsewhere: that keeps its plan, where one in SQL is planned
-- anew at each call.

-- Who holds a key, by instances_key_guard.
create or replace function dormouse.key_holder(p_namespace text, p_key text) returns bigint
language plpgsql stable as $$
begin
    return (
        select id from dormouse.instances
        where namespace = p_namespace and key = p_key and key is not null
            and case
                when key_scope is null then status not in ('done', 'failed', 'cancelled')
                else key_scope = 'always' or strpos(key_scope, status) > 0
            end
    );
end
$$;

-- The instance a key means: its holder, else the newest that had it, a live one before an ended one.
create or replace function dormouse.find_key(p_namespace text, p_key text) returns bigint
language plpgsql stable as $$
begin
    return coalesce(dormouse.key_holder(p_namespace, p_key), (
        select id from dormouse.instances where namespace = p_namespace and key = p_key and key is not null
        order by ended_at is not null, id desc limit 1
    ));
end
$$;

-- The instance that an id or a key means in a namespace. One of another namespace is not there.
create or replace function dormouse.find(p_namespace text, p_id bigint, p_key text) returns bigint
language plpgsql stable as $$
begin
    if p_id is null then
        return dormouse.find_key(p_namespace, p_key);
    end if;
    return (select id from dormouse.instances where id = p_id and namespace = p_namespace);
end
$$;
