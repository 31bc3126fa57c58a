-- The newest rows that failed, by instances_failed_newest.
select id from instances indexed by instances_failed_newest
where status = 'failed' and id < coalesce(?1, 9223372036854775807) order by id desc limit ?2
