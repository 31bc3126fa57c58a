-- A transport, by its primary key.
select * from transports where name = ?1
