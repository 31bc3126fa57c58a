-- Lets go of the children that a released barrier leaves behind: they are cancelled, and count for it no more. Some at a
-- time, by instances_parent, and only what can be had at once; `remains` says that there are others. Whoever calls holds
-- the parent's lock, so that none of them ends meanwhile.
create or replace function dormouse.cancel_rest(
    p_parent bigint, p_round integer, p_now timestamptz, out remains boolean, out effects dormouse.effects
) language plpgsql as $$
declare
    v_rest_max constant integer := 256;
    v_rest constant bigint[] := array(
        select c.id from dormouse.instances c
        where c.parent = p_parent and c.parent_round = p_round and c.parent is not null
            and c.ended_at is null and not c.joined
        order by c.id limit v_rest_max + 1
    );
    v_child bigint;
    v_locked bigint[];
    v_status text;
    v_undoing bigint[];
begin
    remains := cardinality(v_rest) > v_rest_max;
    foreach v_child in array v_rest[:v_rest_max] loop
        v_locked := dormouse.tree(v_child);
        v_locked := dormouse.lock(v_locked, v_locked, false);
        -- What spawned before we had its lock is let go of the next time.
        if not dormouse.tree(v_child) <@ v_locked then
            remains := true;
            continue;
        end if;
        v_undoing := dormouse.undoing(array[v_child]);
        update dormouse.instances set joined = true,
            cancel_requested = cancel_requested or (status = 'executing' and cardinality(v_undoing) = 0),
            cancel_reason = coalesce(cancel_reason, 'its parent no longer waits for it')
        where id = v_child returning status into v_status;
        if v_status = 'executing' and cardinality(v_undoing) > 0 then
            effects := dormouse.merge(effects, dormouse.ask_to_undo(v_undoing, p_now));
        elsif v_status = 'executing' then
            effects.cancel := effects.cancel || v_child;
        else
            effects := dormouse.merge(effects, (select c.effects from dormouse.cancel_all(v_child, p_now) c));
        end if;
    end loop;
end
$$;
