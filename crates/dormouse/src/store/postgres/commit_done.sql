-- The plain end: `done`, for an instance with no special key, and whose parent, if it has one, has no lane and no special key.
-- Its lane, if it has one that can be had at once, is handed on. It proves ownership by worker and seq like every commit.
-- Whatever is special about a row makes it match nothing, and `dormouse.commit` decides. The ids come sorted.
create or replace function dormouse.commit_done(
    p_worker bigint, p_ids bigint[], p_seqs bigint[], p_outputs text[],
    p_started_us bigint[], p_took_us bigint[], p_progress text[], p_received integer[], p_parents bigint[] default null,
    p_in_lanes boolean default false, out done bigint[], out at timestamptz, out effects dormouse.effects
) language plpgsql as $$
declare
    v_place constant bigint := dormouse.feed_place();
    v_parents bigint[];
    v_joining bigint[];
    v_rounds integer[];
    v_changes dormouse.change[];
    v_had integer[];
    v_namespaces text[];
    v_lanes text[];
begin
    if p_in_lanes then
        v_had := dormouse.try_lanes(array(
            select dormouse.lane_number(i.namespace, i.lane) from unnest(p_ids) o (id)
            join dormouse.instances i on i.id = any (array[o.id]) where i.lane is not null
        ));
    end if;
    -- A row that another transaction holds must not keep the others waiting.
    perform set_config('lock_timeout', '500ms', true);
    if p_parents is not null then
        -- Parents and children in the one order of all locks. Lanes would come before, so a parent in a lane is not for here.
        perform from dormouse.instances where id = any (p_ids || p_parents) order by id for no key update;
        select array_agg(id) into v_parents from dormouse.instances
        where id = any (p_parents) and lane is null and key_scope is null;
    end if;
    at := dormouse.now();
    with outcome as materialized (
        select id, seq, output::json as output, took_us, progress::json as progress, received,
            'epoch'::timestamptz + started_us * interval '1 microsecond' as started_at
        from unnest(p_ids, p_seqs, p_outputs, p_started_us, p_took_us, p_progress, p_received)
            o (id, seq, output, started_us, took_us, progress, received)
    ), saved as (
        update dormouse.instances i set
            status = 'done', seq = i.seq + 1, worker = null, inbox = 0, joined = true, changed_at = commit_done.at,
            ended_at = commit_done.at, last_error = null, output = o.output
        from outcome o
        where i.id = any (array[o.id]) and i.seq = o.seq and i.worker is not distinct from p_worker
            and (i.parent is null or (i.parent = any (v_parents) and not i.joined))
            and i.key_scope is null and not i.cancel_requested
            and (i.lane is null or dormouse.lane_number(i.namespace, i.lane) = any (v_had))
            -- What it has not read is told in its history.
            and i.inbox <= o.received
        returning i.id, i.seq, i.namespace, i.queue, i.machine, i.version, i.step, i.keeps_history, i.lane,
            i.parent, i.parent_round, o.started_at, o.took_us, o.progress
    ), recorded as (
        insert into dormouse.history (
            instance, seq, kind, version, step, at, id, started_at, took_us, progress
        )
        select s.id, s.seq, 'done', s.version, s.step, commit_done.at, dormouse.event_id(v_place),
            s.started_at, s.took_us, s.progress
        from saved s where s.keeps_history
    ), counted as (
        insert into dormouse.counts (namespace, queue, machine, version, step, status, count)
        select s.namespace, s.queue, s.machine, s.version, s.step, 'done', count(*) from saved s
        group by s.namespace, s.queue, s.machine, s.version, s.step
    )
    select array_agg(id), array_agg(parent) filter (where parent is not null),
        array_agg(parent_round) filter (where parent is not null),
        array_agg(namespace) filter (where lane is not null), array_agg(lane) filter (where lane is not null)
    into done, v_joining, v_rounds, v_namespaces, v_lanes from saved;
    -- Nothing will ever read what a done one had.
    delete from dormouse.signals where instance = any (done);
    if v_joining is not null then
        v_changes := dormouse.join(v_joining, v_rounds, array_fill(true, array[cardinality(v_joining)]), at);
        if v_changes is not null then
            effects := dormouse.apply(v_changes, at);
        end if;
    end if;
    if v_parents is not null then
        effects.queues := effects.queues || dormouse.queues_to_poke(v_parents);
    end if;
    if v_lanes is not null then
        effects := dormouse.merge(effects, dormouse.settle_lanes(v_namespaces, v_lanes));
    end if;
end
$$;
