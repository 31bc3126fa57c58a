-- The newest rows that failed, by instances_failed_newest.
select id from dormouse.instances
where status = 'failed' and id < coalesce($2::bigint, 9223372036854775807) order by id desc limit $1
