-- These instances whole, in this order, by the primary key, until there are enough bytes of documents: one at a time, so
-- that no more is read than is answered.
with recursive page (nr, bytes, id, state, output) as (
    select 0::bigint, 0::bigint, null::bigint, null::text, null::text
    union all
    select page.nr + 1, page.bytes + coalesce(octet_length(i.state), 0) + coalesce(octet_length(i.output), 0),
        i.id, i.state, i.output
    from page left join lateral (
        select i.id, i.state::text as state, i.output::text as output from dormouse.instances i
        where i.id = any (array[($1::bigint[])[page.nr + 1]]) limit 1
    ) i on true
    where page.nr < cardinality($1::bigint[]) and page.bytes < $2
)
select nr, i.id, namespace, machine, version, key, status, step, page.state, seq, attempt, queue, priority, lane, share, trace, cost, blocked,
    paused, cancel_requested, cancel_reason, cancelled_with, tags, parent, parent_round, parent_index,
    awaits, wake_at, wake, inbox, barrier, round, worker, page.output,
    last_error, created_at, changed_at, ended_at
from page join dormouse.instances i on i.id = any (array[page.id])
order by nr
