-- Oldest first, by the primary key; every other condition filters the walk. What has no place in flight yet is
-- nobody's business.
select * from dormouse.interactions
where opened_at is not null and ($1::bigint is null or id > $1)
    and ($2::text is null or namespace = $2) and ($3::text is null or status = $3)
    and ($4::text is null or transport = $4) and ($5::text is null or machine = $5)
    and ($6::text is null or step = $6)
    and ($7::text is null or for_assignee = $7 or (assignee = $7 and assigned_until > dormouse.now()))
    and ($8::text is null or for_group = $8) and ($9::timestamptz is null or opened_at < $9)
order by id limit $10
