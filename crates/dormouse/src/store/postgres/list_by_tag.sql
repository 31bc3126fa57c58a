-- By the primary key of tags, newest first: needs a namespace; walks what has the first tag. `offset 0` keeps that
-- order: left to itself, the primary key of the instances may look as good to a plan that was made when there were few.
select id, namespace, machine, version, key, status, step, seq, attempt, queue, priority, lane, share, trace, cost, blocked,
    paused, cancel_requested, cancel_reason, cancelled_with, tags, parent, parent_round, parent_index,
    awaits, wake_at, wake, inbox, barrier, round, worker,
    left(last_error, 1000) as last_error, created_at, changed_at, ended_at
from (
    select t.instance from dormouse.tags t
    where t.namespace = $2 and t.tag = ($12::text[])[1] and ($1::bigint is null or t.instance < $1)
    order by t.instance desc
) tagged cross join lateral (
    select * from dormouse.instances i where i.id = tagged.instance offset 0
) i
where ($3::text is null or machine = $3)
    and ($4::text is null or status = $4) and ($5::text is null or queue = $5)
    and ($6::timestamptz is null or created_at >= $6) and ($7::timestamptz is null or created_at < $7)
    and ($9::text is null or (key >= $9 and key < $10))
    and (not $11::boolean or parent is null) and ($12::text[] is null or tags @> $12)
order by tagged.instance desc limit $8
