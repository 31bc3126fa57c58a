-- Folds what was moved into one row for each place, once there is enough of it. Readers see it before or after, and
-- the sums are the same. One at a time: only this removes rows, so it waits for nobody.
create or replace function dormouse.fold_counts(p_bytes_min bigint, p_rows_max integer) returns integer
language plpgsql as $$
declare
    v_rows bigint;
    v_places bigint;
    v_folded integer;
begin
    if pg_relation_size('dormouse.counts') < p_bytes_min or not pg_try_advisory_xact_lock(1685025388) then
        return 0;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    select sum(place.rows), count(*) into v_rows, v_places from (
        select count(*) as rows from dormouse.counts group by namespace, queue, machine, version, step, status
    ) place;
    if v_places = 0 or v_rows < 4 * v_places then
        return 0;
    end if;
    with folded as (
        delete from dormouse.counts
        where ctid = any (array(select ctid from dormouse.counts limit p_rows_max))
        returning *
    ), sums as (
        insert into dormouse.counts (namespace, queue, machine, version, step, status, count)
        select namespace, queue, machine, version, step, status, sum(count) from folded
        group by namespace, queue, machine, version, step, status having sum(count) <> 0
    )
    select count(*) into v_folded from folded;
    return v_folded;
end
$$;
