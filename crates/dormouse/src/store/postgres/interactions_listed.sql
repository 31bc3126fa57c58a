-- These interactions whole, in this order, by the primary key, until there are enough bytes of documents: one at a time,
-- so that no more is read than is answered.
with recursive page (nr, bytes, id) as (
    select 0::bigint, 0::bigint, null::bigint
    union all
    select page.nr + 1, page.bytes + coalesce(octet_length(i.request), 0) + coalesce(octet_length(i.output), 0), i.id
    from page left join lateral (
        select i.id, i.request::text as request, i.output::text as output from dormouse.interactions i
        where i.id = any (array[($1::bigint[])[page.nr + 1]]) limit 1
    ) i on true
    where page.nr < cardinality($1::bigint[]) and page.bytes < $2
)
select nr, i.* from page join dormouse.interactions i on i.id = any (array[page.id]) order by nr
