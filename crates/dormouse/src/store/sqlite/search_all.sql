-- The newest rows, by the primary key.
select id from instances where id < coalesce(?1, 9223372036854775807) order by id desc limit ?2
