select * from instances where id = ?1
