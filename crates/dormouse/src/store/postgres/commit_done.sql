-- The plain end: `done`, for an instance with no parent that waits for it, no lane to hand on and no special key. It
-- proves ownership by worker and seq like every commit. Whatever is special about a row makes it match nothing, and
-- `dormouse.commit` decides. The ids come sorted.
create or replace function dormouse.commit_done(
    p_worker bigint, p_ids bigint[], p_seqs bigint[], p_outputs text[],
    p_started_us bigint[], p_took_us bigint[], p_progress text[], p_received integer[],
    out done bigint[], out at timestamptz
) language plpgsql as $$
declare
    v_place constant bigint := dormouse.feed_place();
begin
    -- A row that another transaction holds must not keep the others waiting.
    perform set_config('lock_timeout', '500ms', true);
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
            and i.parent is null and i.lane is null and i.key_scope is null and not i.cancel_requested
            -- What it has not read is told in its history.
            and i.inbox <= o.received
        returning i.id, i.seq, i.namespace, i.queue, i.machine, i.version, i.step, i.keeps_history,
            o.started_at, o.took_us, o.progress
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
    select array_agg(id) into done from saved;
    -- Nothing will ever read what a done one had.
    delete from dormouse.signals where instance = any (done);
end
$$;
