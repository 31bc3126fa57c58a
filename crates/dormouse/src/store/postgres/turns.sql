-- Which rows are next: priorities in order, and within a priority the turns of its shares. Rows that can run stand in lines,
-- one for each machine, version, priority and share. Lines are found by hops in the claim's index, from where the last claim
-- stopped, and read no deeper than the claim needs.

-- In which round a share serves one of its rows, counted from 0, if its turn under way has some left.
create or replace function dormouse.turn_round(p_nth bigint, p_remains integer, p_weight integer) returns bigint
language sql immutable parallel safe as $$
    select case when p_nth < p_remains then 0 else (p_remains > 0)::integer + (p_nth - p_remains) / p_weight end
$$;

-- What its turn has left after that row.
create or replace function dormouse.turn_remains(p_nth bigint, p_remains integer, p_weight integer) returns integer
language sql immutable parallel safe as $$
    select (case when p_nth < p_remains then p_remains - p_nth else p_weight - (p_nth - p_remains) % p_weight end - 1)::integer
$$;

-- The first priority with rows after this one, and its first share, by instances_line; in one namespace by instances_claim.
create or replace function dormouse.first_share(
    p_queue text, p_machine text, p_version integer, p_namespace text, p_after bigint,
    out priority integer, out share text, out namespace text
) language plpgsql stable as $$
begin
    if p_namespace is null then
        select i.priority, coalesce(i.share, i.namespace), i.namespace
        into first_share.priority, first_share.share, first_share.namespace
        from dormouse.instances i
        where i.status = 'runnable' and not i.blocked and not i.paused
            and i.queue = p_queue and i.machine = p_machine and i.version = p_version and i.priority > p_after
        order by i.priority, coalesce(i.share, i.namespace) limit 1;
    else
        select i.priority, coalesce(i.share, i.namespace), i.namespace
        into first_share.priority, first_share.share, first_share.namespace
        from dormouse.instances i
        where i.status = 'runnable' and not i.blocked and not i.paused
            and i.queue = p_queue and i.machine = p_machine and i.version = p_version and i.namespace = p_namespace
            and i.priority > p_after
        order by i.priority, coalesce(i.share, i.namespace) limit 1;
    end if;
end
$$;

-- Shares of a priority with rows, in order: at most so many, the first of them after or at `p_from`, all before `p_end`. One
-- statement hops from share to share, a lookup each. A namespace whose queue is paused is passed over by one hop.
-- U+0001 is the least that can follow a share, and U+0002 is more than any share of a namespace.
create or replace function dormouse.shares_between(
    p_queue text, p_machine text, p_version integer, p_namespace text, p_priority integer, p_from text, p_end text,
    p_shares_max integer, p_some_paused boolean
) returns table (share text, namespace text) language plpgsql stable as $$
#variable_conflict use_column
begin
    if p_namespace is not null then
        -- The caller leaves out a namespace whose queue is paused.
        return query
        with recursive hops (share, namespace) as (
            select null::text collate "C", p_namespace collate "C"
            union all
            select f.share, f.namespace from hops h cross join lateral (
                select coalesce(i.share, i.namespace) as share, i.namespace from dormouse.instances i
                where i.status = 'runnable' and not i.blocked and not i.paused
                    and i.queue = p_queue and i.machine = p_machine and i.version = p_version
                    and i.namespace = p_namespace and i.priority = p_priority
                    and coalesce(i.share, i.namespace) >= coalesce(h.share || e'\x01', p_from)
                    and coalesce(i.share, i.namespace) < p_end
                order by coalesce(i.share, i.namespace) limit 1
            ) f
        )
        select h.share, h.namespace from hops h where h.share is not null limit p_shares_max;
    else
        return query
        with recursive hops (share, namespace, is_paused) as (
            select null::text collate "C", null::text collate "C", false
            union all
            select f.share, f.namespace, case when p_some_paused then exists (
                select from dormouse.paused_queues q where q.namespace = f.namespace and q.queue = p_queue
            ) else false end
            from hops h cross join lateral (
                select coalesce(i.share, i.namespace) as share, i.namespace from dormouse.instances i
                where i.status = 'runnable' and not i.blocked and not i.paused
                    and i.queue = p_queue and i.machine = p_machine and i.version = p_version
                    and i.priority = p_priority
                    and coalesce(i.share, i.namespace) >= coalesce(
                        case when h.is_paused then h.namespace || e'\x02' else h.share || e'\x01' end, p_from
                    )
                    and coalesce(i.share, i.namespace) < p_end
                order by coalesce(i.share, i.namespace) limit 1
            ) f
        )
        select h.share, h.namespace from hops h where h.share is not null and not h.is_paused limit p_shares_max;
    end if;
end
$$;

-- The first lines of each source, in the order of their turns: a source is a machine and version in one namespace, or in all.
create or replace function dormouse.lines(
    p_queue text, p_machines text[], p_versions integer[], p_namespaces text[], p_lines_max integer[],
    p_later_than integer, p_turn_priorities integer[], p_turn_shares text[], p_turn_remains integer[]
) returns dormouse.line[] language plpgsql stable as $$
declare
    v_lines dormouse.line[] := '{}';
    v_some_paused constant boolean := exists (select from dormouse.paused_queues q where q.queue = p_queue);
    v_some_weighed constant boolean := exists (select from dormouse.shares);
    v_end constant text := repeat(e'\U0010FFFF', 1000); -- no share is after it
    v_priority bigint;
    v_before integer;
    v_first record;
    v_turn integer;
    v_start text;
    v_half record;
begin
    for source in 1..coalesce(cardinality(p_machines), 0) loop
        v_priority := coalesce(p_later_than, -2147483649);
        v_before := cardinality(v_lines);
        while cardinality(v_lines) - v_before < p_lines_max[source] loop
            v_first := dormouse.first_share(
                p_queue, p_machines[source], p_versions[source], p_namespaces[source], v_priority
            );
            exit when v_first.priority is null;
            v_priority := v_first.priority;
            v_turn := array_position(p_turn_priorities, v_first.priority);
            v_start := coalesce(
                p_turn_shares[v_turn] || case when p_turn_remains[v_turn] > 0 then '' else e'\x01' end, ''
            );
            -- From where the last claim stopped to the last share, and then from the first one on to there.
            for v_half in
                select h.second, h.share, h.stop from (values
                    (false, v_start, v_end), (true, v_first.share, v_start)
                ) h (second, share, stop)
                where h.share < h.stop collate "C"
            loop
                v_lines := v_lines || array(
                    select row(
                        source, p_machines[source], p_versions[source], v_first.priority, s.namespace, s.share, v_half.second,
                        case when v_some_weighed
                            then coalesce((select w.weight from dormouse.shares w where w.share = s.share), 1) else 1 end,
                        case when p_turn_shares[v_turn] = s.share then p_turn_remains[v_turn] else 0 end, 1
                    )::dormouse.line
                    from dormouse.shares_between(
                        p_queue, p_machines[source], p_versions[source], p_namespaces[source], v_first.priority,
                        v_half.share, v_half.stop, p_lines_max[source] - (cardinality(v_lines) - v_before), v_some_paused
                    ) s
                );
                exit when cardinality(v_lines) - v_before >= p_lines_max[source];
            end loop;
        end loop;
    end loop;
    return v_lines;
end
$$;

-- How many rows each line has among the first ones of all, and the place of the last of those if they are as many as asked
-- for. A line is asked for its part of them, and for more only while all that it gave is among the first and its next row
-- may be.
create or replace function dormouse.portions(
    p_queue text, p_lines dormouse.line[], p_rows_max integer, p_taken bigint[],
    out portions integer[], out rows bigint, out cut_priority integer, out cut_round bigint, out cut_second boolean,
    out cut_share text
) language plpgsql stable as $$
declare
    v_lines constant integer := cardinality(p_lines);
    v_asked integer[] := array_fill((p_rows_max + v_lines - 1) / v_lines, array[v_lines]);
    v_more integer[];
begin
    loop
        with waiting as (
            select l.place, l.priority, l.share, l.second, l.weight, l.remains, i.runnable_at, i.id,
                row_number() over (partition by l.priority, l.share order by i.runnable_at, i.id) - 1 as nth
            from unnest(p_lines) with ordinality
                l (source, machine, version, priority, namespace, share, second, weight, remains, rows, place)
            cross join lateral (
                select i.runnable_at, i.id from dormouse.instances i
                where i.status = 'runnable' and not i.blocked and not i.paused
                    and i.queue = p_queue and i.machine = l.machine and i.version = l.version
                    and i.namespace = l.namespace and i.priority = l.priority
                    and coalesce(i.share, i.namespace) = l.share and i.id <> all (p_taken)
                order by i.runnable_at, i.id limit v_asked[l.place]
            ) i
        ), first as (
            select w.place, w.priority, dormouse.turn_round(w.nth, w.remains, w.weight) as round, w.second, w.share,
                row_number() over (order by w.priority, dormouse.turn_round(w.nth, w.remains, w.weight), w.second,
                    w.share collate "C", w.runnable_at, w.id) as nth
            from waiting w
            order by nth limit p_rows_max
        ), last as (
            select * from first order by nth desc limit 1
        )
        select array_agg(coalesce(gave.rows, 0) order by l.place), coalesce(sum(gave.rows), 0),
            (select last.priority from last), (select last.round from last), (select last.second from last),
            (select last.share from last)
        into portions.portions, portions.rows, cut_priority, cut_round, cut_second, cut_share
        from generate_series(1, v_lines) l (place)
        left join (select f.place, count(*)::integer as rows from first f group by f.place) gave on gave.place = l.place;
        -- The next row of a line comes in no earlier round than this; after the last of the first ones, it is not among them.
        select array_agg(case
            when l.gave = l.asked and (
                portions.rows < p_rows_max
                or (l.priority, dormouse.turn_round(l.asked, l.remains, l.weight)) <= (cut_priority, cut_round)
            ) then least(l.asked * 4, p_rows_max)
            else l.asked
        end order by l.place)
        into v_more
        from rows from (unnest(portions.portions), unnest(v_asked), unnest(p_lines)) with ordinality
            l (gave, asked, source, machine, version, priority, namespace, share, second, weight, remains, rows, place);
        exit when v_more is not distinct from v_asked;
        v_asked := v_more;
    end loop;
end
$$;

-- The first rows in order, locked: whatever another worker is taking is passed over, and not a row more is locked than will
-- be taken. While others take rows of the same shares, the shares behind those are asked, a few times over.
create or replace function dormouse.next_rows(
    p_queue text, p_namespaces text[], p_machines text[], p_versions integer[], p_rows_max integer,
    p_later_than integer, p_turn_priorities integer[], p_turn_shares text[], p_turn_remains integer[],
    out ids bigint[], out shares text[], out remains integer[]
) language plpgsql as $$
declare
    v_machines text[];
    v_versions integer[];
    v_namespaces text[];
    v_priorities integer[] := p_turn_priorities;
    v_shares text[] := p_turn_shares;
    v_remains integer[] := p_turn_remains;
    v_found record;
    v_locked record;
begin
    ids := '{}';
    shares := '{}';
    remains := '{}';
    -- Sources without a row that can run are left out, so that the others need not share the claim with them.
    select array_agg(run.machine), array_agg(run.version),
        case when p_namespaces is not null then array_agg(served.namespace) end
    into v_machines, v_versions, v_namespaces
    from (
        select distinct n.namespace from unnest(coalesce(p_namespaces, array[null])) n (namespace)
        where n.namespace is null or (
            select true from dormouse.paused_queues q where q.namespace = n.namespace and q.queue = p_queue
        ) is null
    ) served
    cross join unnest(p_machines, p_versions) run (machine, version)
    cross join lateral dormouse.first_share(
        p_queue, run.machine, run.version, served.namespace, coalesce(p_later_than, -2147483649)
    ) first where first.priority is not null;
    for pass in 1..16 loop
        exit when coalesce(cardinality(v_machines), 0) = 0;
        v_found := dormouse.next_lines(
            p_queue, v_machines, v_versions, v_namespaces, p_rows_max - cardinality(ids), ids,
            p_later_than, v_priorities, v_shares, v_remains
        );
        exit when v_found.lines = '{}';
        select coalesce(array_agg(r.id order by r.place), '{}') as ids, coalesce(array_agg(r.share order by r.place), '{}') as shares,
            coalesce(array_agg(r.remains order by r.place), '{}') as remains
        into v_locked from (
            select w.id, w.share, dormouse.turn_remains(w.nth, w.left_over, w.weight) as remains,
                row_number() over (order by w.priority, dormouse.turn_round(w.nth, w.left_over, w.weight), w.second,
                    w.share collate "C", w.runnable_at, w.id) as place
            from (
                select l.priority, l.share, l.second, l.weight, l.remains as left_over, i.runnable_at, i.id,
                    row_number() over (partition by l.priority, l.share order by i.runnable_at, i.id) - 1 as nth
                from unnest(v_found.lines)
                    l (source, machine, version, priority, namespace, share, second, weight, remains, rows)
                cross join lateral (
                    select i.runnable_at, i.id from dormouse.instances i
                    where i.status = 'runnable' and not i.blocked and not i.paused
                        and i.queue = p_queue and i.machine = l.machine and i.version = l.version
                        and i.namespace = l.namespace and i.priority = l.priority
                        and coalesce(i.share, i.namespace) = l.share and i.id <> all (next_rows.ids)
                    order by i.runnable_at, i.id limit l.rows
                    for no key update skip locked
                ) i where l.rows > 0
            ) w
        ) r;
        ids := ids || v_locked.ids;
        shares := shares || v_locked.shares;
        remains := remains || v_locked.remains;
        exit when cardinality(ids) = p_rows_max or cardinality(v_locked.ids) = v_found.rows or v_found.rows is null
            or (v_locked.ids = '{}' and v_found.is_all);
        if not v_found.is_all then
            v_priorities := v_found.last_priority || v_priorities;
            v_shares := v_found.last_share || v_shares;
            v_remains := 0 || v_remains;
        end if;
    end loop;
end
$$;

-- The lines that have the first rows, and of how many each. A source is asked for its part of the lines, and for more only
-- while those that it has not shown could have rows among the first.
create or replace function dormouse.next_lines(
    p_queue text, p_machines text[], p_versions integer[], p_namespaces text[], p_rows_max integer, p_taken bigint[],
    p_later_than integer, p_turn_priorities integer[], p_turn_shares text[], p_turn_remains integer[],
    out lines dormouse.line[],
    out rows bigint,     -- how many they have; null: whoever locks them finds out
    out is_all boolean,  -- no other line has rows
    out last_priority integer, out last_share text
) language plpgsql stable as $$
declare
    v_sources constant integer := cardinality(p_machines);
    v_lines_max integer[] := array_fill((p_rows_max + v_sources - 1) / v_sources, array[v_sources]);
    v_more integer[];
    v_first record;
    v_last record;
begin
    loop
        lines := dormouse.lines(
            p_queue, p_machines, p_versions, p_namespaces, v_lines_max, p_later_than, p_turn_priorities, p_turn_shares,
            p_turn_remains
        );
        if v_sources = 1 and cardinality(lines) = 1 and p_rows_max > 1 then
            -- One share, as in most systems: it has all turns.
            is_all := true;
            lines := array[row(
                (lines[1]).source, (lines[1]).machine, (lines[1]).version, (lines[1]).priority, (lines[1]).namespace,
                (lines[1]).share, (lines[1]).second, (lines[1]).weight, (lines[1]).remains, p_rows_max
            )::dormouse.line];
            return;
        elsif v_sources = 1 and cardinality(lines) = p_rows_max
            and (lines[1]).priority = (lines[p_rows_max]).priority
            and (select bool_and(l.weight = 1 and l.remains <= 1) from unnest(lines) l) then
            -- As many shares of one priority as rows are asked for: each has its first row, as the lines say already.
            is_all := false;
            rows := p_rows_max;
            last_priority := (lines[p_rows_max]).priority;
            last_share := (lines[p_rows_max]).share;
            return;
        elsif lines = '{}' then
            is_all := true;
            rows := 0;
            return;
        end if;
        v_first := dormouse.portions(p_queue, lines, p_rows_max, p_taken);
        rows := v_first.rows;
        last_priority := v_first.cut_priority;
        last_share := v_first.cut_share;
        is_all := true;
        v_more := v_lines_max;
        for v_last in
            select distinct on (l.source) l.source, l.priority, l.second, l.share,
                count(*) over (partition by l.source) as found
            from unnest(lines) with ordinality
                l (source, machine, version, priority, namespace, share, second, weight, remains, rows, place)
            order by l.source, l.place desc
        loop
            if v_last.found = v_lines_max[v_last.source] then
                is_all := false;
                if v_first.rows < p_rows_max or (v_last.priority, 0::bigint, v_last.second, v_last.share collate "C")
                    < (v_first.cut_priority, v_first.cut_round, v_first.cut_second, v_first.cut_share collate "C") then
                    v_more[v_last.source] := least(v_lines_max[v_last.source] * 4, p_rows_max);
                end if;
            end if;
        end loop;
        exit when v_more = v_lines_max;
        v_lines_max := v_more;
    end loop;
    lines := array(
        select row(l.source, l.machine, l.version, l.priority, l.namespace, l.share, l.second, l.weight, l.remains,
            v_first.portions[l.place])::dormouse.line
        from unnest(lines) with ordinality
            l (source, machine, version, priority, namespace, share, second, weight, remains, rows, place)
        order by l.place
    );
end
$$;
