-- The newest rows, by the primary key.
select id from dormouse.instances where id < coalesce($2::bigint, 9223372036854775807) order by id desc limit $1
