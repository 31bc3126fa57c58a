-- Of these rows, by the primary key, those that meet every condition.
select id, namespace, machine, version, key, status, step, seq, attempt, queue, priority, lane, share, trace, cost, blocked,
    paused, cancel_requested, cancel_reason, cancelled_with, tags, parent, parent_round, parent_index,
    awaits, wake_at, wake, inbox, barrier, round, worker,
    left(last_error, 1000) as last_error, created_at, changed_at, ended_at
from unnest($13::bigint[]) candidate (wanted) cross join lateral (
    select * from dormouse.instances i where i.id = any (array[candidate.wanted]) limit 1
) i
where ($1::bigint is null or case when $14 then id > $1 else id < $1 end)
    and ($2::text is null or namespace = $2) and ($3::text is null or machine = $3)
    and ($4::text is null or status = $4) and ($5::text is null or queue = $5)
    and ($6::timestamptz is null or created_at >= $6) and ($7::timestamptz is null or created_at < $7)
    and ($9::text is null or (key >= $9 and key < $10))
    and (not $11::boolean or parent is null) and ($12::text[] is null or tags @> $12)
    and ($15::integer is null or version = $15) and ($16::text is null or step = $16)
    and ($17::text[] is null or status = any ($17))
    and ($18::timestamptz is null or changed_at >= $18) and ($19::timestamptz is null or changed_at < $19)
    and ($20::timestamptz is null or ended_at >= $20) and ($21::timestamptz is null or ended_at < $21)
    and ($22::text is null or position(lower($22) in lower(last_error)) > 0)
    and ($23::bigint is null or parent = $23)
    and ($24::text is null or (status = 'awaiting_signal' and awaits @> array[$24]))
    and ($25::text[] is null or (
        select bool_and(dormouse.holds(i.state, string_to_array(c.field, '.'), c.compare, c.kind, c.value))
        from unnest($25::text[], $26::text[], $27::text[], $28::text[]) c (field, compare, kind, value)
    ))
order by case when $14::boolean then id end, id desc limit $8
