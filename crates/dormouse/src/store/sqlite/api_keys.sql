-- Few rows, oldest first.
select * from api_keys where ?1 is null or namespace = ?1 order by created_at, id
