-- Locks, in the one order in which everything here takes them: lanes (lane.sql), then instances by id, a parent
-- with a child that ends, then keys in their order, by inserting them. After it, a statement sees these rows as
-- nobody else can change them. Whoever finds later that it needs more than it has locked may not wait for it.

-- Locks instances, the parents of those that end, and further lanes. Without waiting, it leaves out whatever another
-- transaction holds, or whose lane another holds, and says which ones it has; null means all of them. Each further lane
-- is needed by the instance at the same place of `p_lanes_for`.
--
-- An instance whose key counts as taken in some statuses only may fail by entering one: its parent is locked, too.
create or replace function dormouse.lock(
    p_ids bigint[], p_ending bigint[], p_wait boolean default true, p_lanes integer[] default null,
    p_lanes_for bigint[] default null
) returns bigint[] language plpgsql as $$
declare
    v_lanes integer[];
    v_parents bigint[];
    v_had integer[];
    v_locked bigint[];
    v_short bigint[];
begin
    select p_lanes || array_agg(dormouse.lane_number(i.namespace, i.lane)) filter (where i.lane is not null),
        array_agg(i.parent) filter (
            where i.parent is not null and not i.joined and (i.id = any (p_ending) or i.key_scope is not null)
        )
    into v_lanes, v_parents
    from unnest(p_ids) wanted (id) join dormouse.instances i on i.id = any (array[wanted.id]);
    if v_parents is not null then
        select v_lanes || array_agg(dormouse.lane_number(i.namespace, i.lane)) into v_lanes
        from unnest(v_parents) wanted (id) join dormouse.instances i on i.id = any (array[wanted.id])
        where i.lane is not null;
    end if;
    if p_wait then
        if v_lanes is not null then
            perform dormouse.lock_lanes(v_lanes);
        end if;
        perform from dormouse.instances where id = any (p_ids || v_parents) order by id for no key update;
        return null;
    end if;
    if v_lanes is not null then
        v_had := dormouse.try_lanes(v_lanes);
        v_short := array(
            select needs.id from unnest(p_lanes, p_lanes_for) needs (lane, id) where needs.lane <> all (v_had)
        );
    end if;
    select array_agg(id) into v_locked from (
        select id from dormouse.instances
        where id = any (p_ids || v_parents)
            and (lane is null or dormouse.lane_number(namespace, lane) = any (v_had))
        order by id for no key update skip locked
    ) locked;
    return array(
        select i.id from unnest(p_ids) wanted (id) join dormouse.instances i on i.id = any (array[wanted.id])
        where i.id = any (v_locked) and i.id <> all (coalesce(v_short, '{}'))
            and (i.parent is null or i.joined or i.parent = any (v_locked)
                or (i.id <> all (p_ending) and i.key_scope is null)
                -- A parent that was collected cannot be locked, and hears of no end.
                or not exists (select from dormouse.instances p where p.id = i.parent))
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
        select from unnest(p_ids) wanted (id) join dormouse.instances i on i.id = any (array[wanted.id])
        where i.id <> all (v_locked)
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
            select i.id, i.status = 'executing' from tree t cross join lateral (
                select c.id, c.status from dormouse.instances c
                where c.parent = t.id and c.parent is not null and c.cascade and c.ended_at is null offset 0
            ) i where not t.runs
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
