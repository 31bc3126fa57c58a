-- Who is parked on a name, who has waited longest first, by instances_awaiting: hops over the distinct sets, then
-- walks those that hold it. A set is asked for as a range and its rows in the index's whole order: if it were known
-- that they differ in their ids alone, the primary key would look as good, and all that waits for something else
-- would be walked.
with recursive sets (awaits) as (
    (select awaits from dormouse.instances where status = 'awaiting_signal' order by awaits limit 1)
    union all
    select next.awaits from sets cross join lateral (
        select i.awaits from dormouse.instances i
        where i.status = 'awaiting_signal' and i.awaits > sets.awaits order by i.awaits limit 1
    ) next
)
select id, namespace, machine, version, key, status, step, seq, attempt, queue, priority, lane, share, trace, cost, blocked,
    paused, cancel_requested, cancel_reason, cancelled_with, tags, parent, parent_round, parent_index,
    waiting.awaits, wake_at, wake, inbox, barrier, round, worker,
    left(last_error, 1000) as last_error, created_at, changed_at, ended_at, runnable_at as place_at
from sets cross join lateral (
    select * from dormouse.instances i
    where i.status = 'awaiting_signal' and i.awaits >= sets.awaits and i.awaits <= sets.awaits 
        and ($1::bigint is null or (i.runnable_at, i.id) > (
            coalesce($15::timestamptz, (select runnable_at from dormouse.instances where id = $1)), $1
        ))
        and ($2::text is null or namespace = $2) and ($3::text is null or machine = $3)
        and ($4::text is null or status = $4) and ($5::text is null or queue = $5)
        and ($6::timestamptz is null or created_at >= $6) and ($7::timestamptz is null or created_at < $7)
        and ($9::text is null or (key >= $9 and key < $10)) and ($14::bigint is null or parent = $14)
        and (not $11::boolean or parent is null) and ($12::text[] is null or tags @> $12)
    order by i.awaits, i.runnable_at, i.id limit $8
) waiting
where $13 = any (sets.awaits)
order by runnable_at, id limit $8
