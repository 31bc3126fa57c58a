-- Locks, in the one order in which everything here takes them: lanes by slot, then instances by id, a parent
-- with a child that ends, then keys in their order, by inserting them. After it, a statement sees these rows as
-- nobody else can change them. Whoever finds later that it needs more than it has locked may not wait for it.

-- Lanes are locked by slot, so that no batch, however large, holds more than 512 of them.
create or replace function dormouse.lane_slot(p_namespace text, p_lane text) returns integer
language sql immutable parallel safe as $$
    select (hashtextextended(p_namespace || e'\n' || p_lane, 0) & 511)::integer
$$;

create or replace function dormouse.lock_lanes(p_slots integer[]) returns void
language plpgsql as $$
begin
    perform pg_advisory_xact_lock(1685025389, slot)
    from (select distinct slot from unnest(p_slots) slot where slot is not null order by slot) sorted;
end
$$;

-- Locks instances, the parents of those that end, and further lanes by their slots. Without waiting, it leaves out
-- whatever another transaction holds, and says which ones it has; null means all of them.
create or replace function dormouse.lock(
    p_ids bigint[], p_ending bigint[], p_wait boolean default true, p_slots integer[] default null
) returns bigint[] language plpgsql as $$
declare
    v_slots integer[];
    v_parents bigint[];
    v_locked bigint[];
begin
    select p_slots || array_agg(dormouse.lane_slot(i.namespace, i.lane)) filter (where i.lane is not null),
        array_agg(i.parent) filter (where i.parent is not null and not i.joined and i.id = any (p_ending))
    into v_slots, v_parents
    from unnest(p_ids) wanted (id) join dormouse.instances i using (id);
    if v_parents is not null then
        select v_slots || array_agg(dormouse.lane_slot(i.namespace, i.lane)) into v_slots
        from unnest(v_parents) wanted (id) join dormouse.instances i using (id) where i.lane is not null;
    end if;
    if p_wait then
        if v_slots is not null then
            perform dormouse.lock_lanes(v_slots);
        end if;
        perform from dormouse.instances where id = any (p_ids || v_parents) order by id for no key update;
        return null;
    end if;
    -- All lanes or none: which rows could do without the missing one is not worth finding out.
    if not (select coalesce(bool_and(pg_try_advisory_xact_lock(1685025389, slot)), true)
            from unnest(v_slots) slot where slot is not null) then
        return '{}';
    end if;
    select array_agg(id) into v_locked from (
        select id from dormouse.instances where id = any (p_ids || v_parents)
        order by id for no key update skip locked
    ) locked;
    return array(
        select i.id from unnest(p_ids) wanted (id) join dormouse.instances i using (id)
        where i.id = any (v_locked)
            and (not i.id = any (p_ending) or i.parent is null or i.joined or i.parent = any (v_locked))
    );
end
$$;

-- Locks what turned out to be needed after something else was locked. To wait for it now could be to wait in a
-- circle, so what cannot be had at once is a lost race, and the whole call is made again.
create or replace function dormouse.lock_more(p_ids bigint[], p_ending bigint[]) returns void
language plpgsql as $$
declare
    v_locked constant bigint[] := dormouse.lock(p_ids, p_ending, false);
begin
    if exists (
        select from unnest(p_ids) wanted (id) join dormouse.instances i using (id) where not i.id = any (v_locked)
    ) then
        raise exception 'the instances changed while their locks were waited for'
            using errcode = 'serialization_failure', hint = 'Send it again.';
    end if;
end
$$;

-- An instance and, for each spawn that chose so, its live children and theirs; not those of one that runs.
create or replace function dormouse.tree(p_id bigint) returns bigint[]
language plpgsql stable as $$
begin
    return (
        with recursive tree (id, runs) as (
            select id, false from dormouse.instances where id = p_id
            union all
            select i.id, i.status = 'executing' from tree t join dormouse.instances i on i.parent = t.id
            where i.parent is not null and i.cascade and i.ended_at is null and not t.runs
        )
        select array_agg(id order by id) from tree
    );
end
$$;

-- Locks an instance with all that is cancelled with it, and says what that is.
create or replace function dormouse.lock_tree(p_id bigint) returns bigint[]
language plpgsql as $$
declare
    v_ids bigint[] := dormouse.tree(p_id);
    v_found bigint[];
begin
    perform dormouse.lock(v_ids, v_ids);
    loop
        v_found := dormouse.tree(p_id);
        -- A child may have spawned while we waited for its lock.
        exit when v_found is null or v_found <@ v_ids;
        perform dormouse.lock_more(v_found, v_found);
        v_ids := v_found;
    end loop;
    return v_found;
end
$$;
