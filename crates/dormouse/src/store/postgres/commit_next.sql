-- The run-ahead commit: a `next` that keeps its claim and had nothing to consume. It touches no indexed column,
-- so that the new row fits beside the old one and no index is written, and proves ownership by worker and seq.
-- Whatever is special about a row makes it match nothing, and `dormouse.commit` decides. The ids come sorted.
create or replace function dormouse.commit_next(
    p_worker bigint, p_ids bigint[], p_seqs bigint[], p_versions integer[], p_steps text[], p_states text[],
    p_started_us bigint[], p_took_us bigint[], p_progress text[], out held bigint[], out at timestamptz
) language plpgsql as $$
declare
    v_place constant bigint := dormouse.feed_place();
begin
    -- A row that another transaction holds must not keep the others waiting.
    perform set_config('lock_timeout', '500ms', true);
    at := dormouse.now();
    with outcome as materialized (
        select id, seq, version, step, state::json as state, took_us, progress::json as progress,
            'epoch'::timestamptz + started_us * interval '1 microsecond' as started_at
        from unnest(p_ids, p_seqs, p_versions, p_steps, p_states, p_started_us, p_took_us, p_progress)
            o (id, seq, version, step, state, started_us, took_us, progress)
    ), saved as (
        update dormouse.instances i set
            step = o.step, state = o.state, seq = i.seq + 1, attempt = 0, changed_at = commit_next.at,
            last_error = null
        from outcome o
        where i.id = any (array[o.id]) and i.seq = o.seq and i.worker is not distinct from p_worker and i.version = o.version
            and i.wake is null and i.inbox = 0 and not i.cancel_requested and not i.paused
        returning i.id, i.seq, i.version, i.step, i.keeps_history, o.state, o.started_at,
            o.took_us, o.progress
    ), recorded as (
        insert into dormouse.history (
            instance, seq, kind, version, step, at, state, id, started_at, took_us, progress
        )
        select s.id, s.seq, 'step.completed', s.version, s.step, commit_next.at, s.state,
            dormouse.event_id(v_place), s.started_at, s.took_us, s.progress
        from saved s where s.keeps_history
    )
    select array_agg(id) into held from saved;
end
$$;
