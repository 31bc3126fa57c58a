-- Removes ended instances past their retention, by instances_ended; never a child that its parent may still
-- read, now or when it is retried within the retention.
create or replace function dormouse.collect_ended(
    p_age_us bigint, p_rows_max integer, p_namespace text
) returns integer
language plpgsql as $$
declare
    v_before constant timestamptz := dormouse.now() - p_age_us * interval '1 microsecond';
    v_ids bigint[];
    v_tagged record;
begin
    perform set_config('synchronous_commit', 'off', true);
    v_ids := array(
        select i.id from dormouse.instances i
        where i.ended_at <= v_before and i.ended_at is not null
            and (p_namespace is null or i.namespace = p_namespace)
            and (
                select true from dormouse.instances p
                where p.id = i.parent and p.round = i.parent_round
                    and (p.ended_at is null or p.ended_at > v_before)
            ) is null
        order by i.ended_at limit p_rows_max
        for update of i skip locked
    );
    delete from dormouse.interactions
    where unit = any (array(select u.id from dormouse.units u where u.instance = any (v_ids)));
    delete from dormouse.units where instance = any (v_ids);
    delete from dormouse.barriers where instance = any (v_ids);
    -- One by one, so that no plan can walk the tags of all others.
    for v_tagged in
        select i.id, i.namespace, i.tags from dormouse.instances i where i.id = any (v_ids) and i.tags is not null
    loop
        delete from dormouse.tags t
        where t.namespace = v_tagged.namespace and t.tag = any (v_tagged.tags) and t.instance = v_tagged.id;
    end loop;
    delete from dormouse.progress where instance = any (v_ids);
    delete from dormouse.history where instance = any (v_ids);
    delete from dormouse.signals where instance = any (v_ids);
    with gone as (
        delete from dormouse.instances where id = any (v_ids)
        returning namespace, queue, machine, version, step, status
    )
    insert into dormouse.counts (namespace, queue, machine, version, step, status, count)
    select namespace, queue, machine, version, step, status, -count(*) from gone
    group by namespace, queue, machine, version, step, status;
    return cardinality(v_ids);
end
$$;

-- Removes old events of live instances that a later, equally old event with a state makes superfluous; but not one
-- whose state the next event still stands on: that one goes in the next sweep. The walk is over a stretch of the
-- table's pages, so it needs no index; it says at which page to go on.
create or replace function dormouse.collect_events(
    p_age_us bigint, p_page bigint, p_pages integer, p_rows_max integer, out gone integer, out next_page bigint
) language plpgsql as $$
declare
    v_before constant timestamptz := dormouse.now() - p_age_us * interval '1 microsecond';
begin
    perform set_config('synchronous_commit', 'off', true);
    with stretch as (
        select h.instance, h.seq, h.state is null as stateless from dormouse.history h
        where h.ctid >= format('(%s,0)', p_page)::tid and h.ctid < format('(%s,0)', p_page + p_pages)::tid
            and h.at < v_before
    ), superfluous as (
        select s.instance, s.seq from stretch s
        where (
            select true from dormouse.history later
            where later.instance = s.instance and later.seq > s.seq and later.state is not null
                and later.at < v_before limit 1
        ) and (s.stateless or (
            select next.state is not null from dormouse.history next
            where next.instance = s.instance and next.seq > s.seq order by next.seq limit 1
        ))
        limit p_rows_max
    ), removed as (
        delete from dormouse.history h using superfluous s
        where h.instance = any (array[s.instance]) and h.seq = any (array[s.seq]) returning 1
    )
    select count(*) into gone from removed;
    -- A full batch may have left some behind on these pages.
    next_page := case when gone < p_rows_max then p_page + p_pages else p_page end;
    if next_page >= pg_relation_size('dormouse.history') / current_setting('block_size')::bigint then
        next_page := null;
    end if;
end
$$;
