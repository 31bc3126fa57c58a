-- Events after one, in order, each with the state after it, by the primary key, until there are enough rows or bytes of
-- documents: one event at a time, so that no more is read than is answered.
with recursive page (nr, bytes, seq, kind, version, step, data, at, started_at, took_us, progress, state) as (
    select 0::bigint, 0::bigint, $2::bigint, null::text, null::integer, null::text, null::text, null::timestamptz,
        null::timestamptz, null::bigint, null::text, null::text
    union all
    select page.nr + 1,
        page.bytes + octet_length(e.state) + coalesce(octet_length(e.data), 0) + coalesce(octet_length(e.progress), 0),
        e.seq, e.kind, e.version, e.step, e.data, e.at, e.started_at, e.took_us, e.progress, e.state
    from page cross join lateral (
        select h.seq, h.kind, h.version, h.step, h.data::text as data, h.at, h.started_at, h.took_us,
            h.progress::text as progress, coalesce(h.state, (
                select s.state from dormouse.history s
                where s.instance = h.instance and s.seq < h.seq and s.state is not null
                order by s.seq desc limit 1
            ), 'null')::text as state
        from dormouse.history h where h.instance = $1 and h.seq > page.seq
        order by h.seq limit 1
    ) e
    where page.nr < $3 and page.bytes < $4
)
select seq, kind, version, step, data, at, started_at, took_us, progress, state,
    exists (select from dormouse.history n where n.instance = $1 and n.seq > page.seq) as more
from page where nr > 0 order by nr
