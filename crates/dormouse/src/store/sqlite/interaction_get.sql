select * from interactions where id = ?1
