-- The newest rows with a tag, by the primary key of tags.
select instance as id from dormouse.tags
where namespace = $3 and tag = $4 and instance < coalesce($2::bigint, 9223372036854775807)
order by instance desc limit $1
