-- The newest rows with a tag, by the primary key of tags.
select instance from tags where namespace = ?1 and tag = ?2 and instance < coalesce(?3, 9223372036854775807)
order by instance desc limit ?4
