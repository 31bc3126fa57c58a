-- Newest first, by the primary key; every other condition filters the walk.
select id, namespace, machine, version, key, status, step, seq, attempt, queue, priority, lane, share, trace, cost, blocked,
    paused, cancel_requested, cancel_reason, cancelled_with, tags, parent, parent_round, parent_index,
    awaits, wake_at, wake, inbox, barrier, round, worker,
    left(last_error, 1000) as last_error, created_at, changed_at, ended_at
from dormouse.instances
where ($1::bigint is null or id < $1)
    and ($2::text is null or namespace = $2) and ($3::text is null or machine = $3)
    and ($4::text is null or status = $4) and ($5::text is null or queue = $5)
    and ($6::timestamptz is null or created_at >= $6) and ($7::timestamptz is null or created_at < $7)
    and ($9::text is null or (key >= $9 and key < $10))
    and (not $11::boolean or parent is null) and ($12::text[] is null or tags @> $12)
order by id desc limit $8
