-- Replaces what running steps reported before, if the worker still runs them as it did. A new place tells those who watch.
-- No row of an instance is locked: only its worker writes what it reports.
create or replace function dormouse.report(p_worker bigint, p_ids bigint[], p_seqs bigint[], p_values text[])
returns void language plpgsql as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into dormouse.progress as p (instance, place, seq, at, value)
    select i.id, nextval('dormouse.progress_places'), i.seq, dormouse.now(), r.value::json
    from unnest(p_ids, p_seqs, p_values) r (id, seq, value) cross join lateral (
        select i.id, i.seq from dormouse.instances i
        where i.id = r.id and i.seq = r.seq and i.worker is not distinct from p_worker offset 0
    ) i order by i.id
    on conflict (instance) do update
    set place = excluded.place, seq = excluded.seq, at = excluded.at, value = excluded.value;
end
$$;
