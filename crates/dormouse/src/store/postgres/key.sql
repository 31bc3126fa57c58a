-- Who holds a key, by instances_key_guard.
create or replace function dormouse.key_holder(p_namespace text, p_key text) returns bigint
language sql stable as $$
    select id from dormouse.instances
    where namespace = p_namespace and key = p_key and key is not null
        and case
            when key_scope is null then status not in ('done', 'failed', 'cancelled')
            else key_scope = 'always' or strpos(key_scope, status) > 0
        end
$$;

-- The instance a key means: its holder, else the newest that had it, a live one before an ended one.
create or replace function dormouse.find_key(p_namespace text, p_key text) returns bigint
language sql stable as $$
    select coalesce(dormouse.key_holder(p_namespace, p_key), (
        select id from dormouse.instances where namespace = p_namespace and key = p_key and key is not null
        order by ended_at is not null, id desc limit 1
    ))
$$;
