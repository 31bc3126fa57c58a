-- Transports in the order of their names, by their primary key.
select * from transports where name > ?1 order by name limit ?2
