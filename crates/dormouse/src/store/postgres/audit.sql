-- Newest first, by the primary key.
select id, at, namespace, who, what, target, result from dormouse.audit
where ($1::bigint is null or id < $1) and ($2::text is null or who = $2) and ($3::text is null or what = $3)
    and ($4::text is null or target = $4)
order by id desc limit $5
