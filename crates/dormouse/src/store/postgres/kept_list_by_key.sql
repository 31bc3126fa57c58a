-- What is kept for a key after one signal, in order of arrival, by kept_key, until there are enough rows or
-- bytes of payloads: one signal at a time, so that no more is read than is answered.
with recursive page (nr, bytes, id, key, name, payload, dedup_key, at, until) as (
    select 0::bigint, 0::bigint, $2::bigint, null::text collate "C", null::text collate "C", null::text,
        null::text collate "C", null::timestamptz, null::timestamptz
    union all
    select page.nr + 1, page.bytes + octet_length(k.payload), k.id, k.key, k.name, k.payload, k.dedup_key, k.at, k.until
    from page cross join lateral (
        select k.id, k.key, k.name, k.payload::text as payload, k.dedup_key, k.at, k.until from dormouse.kept k
        where k.namespace = $1 and k.key = $3 and k.id > page.id order by k.id limit 1
    ) k
    where page.nr < $4 and page.bytes < $5
)
select id, key, name, payload, dedup_key, at, until,
    exists (select from dormouse.kept n where n.namespace = $1 and n.key = $3 and n.id > page.id) as more
from page where nr > 0 order by nr
