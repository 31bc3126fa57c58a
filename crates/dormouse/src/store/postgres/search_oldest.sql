-- The oldest rows, by the primary key.
select id from dormouse.instances where id > coalesce($2::bigint, -1) order by id limit $1
