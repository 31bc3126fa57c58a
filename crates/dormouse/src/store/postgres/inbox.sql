-- What waits for an instance after one signal, in order of arrival, by the primary key, until there are enough rows or
-- bytes of payloads: one signal at a time, so that no more is read than is answered.
with recursive page (nr, bytes, id, name, payload, dedup_key, at, trace) as (
    select 0::bigint, 0::bigint, $2::bigint, null::text collate "C", null::text, null::text collate "C", null::timestamptz,
        null::text collate "C"
    union all
    select page.nr + 1, page.bytes + octet_length(s.payload), s.id, s.name, s.payload, s.dedup_key, s.at, s.trace
    from page cross join lateral (
        select s.id, s.name, s.payload::text as payload, s.dedup_key, s.at, s.trace from dormouse.signals s
        where s.instance = $1 and s.id > page.id and not s.consumed
        order by s.id limit 1
    ) s
    where page.nr < $3 and page.bytes < $4
)
select id, name, payload, dedup_key, at, trace,
    exists (select from dormouse.signals n where n.instance = $1 and n.id > page.id and not n.consumed) as more
from page where nr > 0 order by nr
