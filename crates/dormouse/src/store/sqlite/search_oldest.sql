-- The oldest rows, by the primary key.
select id from instances where id > coalesce(?1, -1) order by id limit ?2
