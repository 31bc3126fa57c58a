-- What a head leaves out, by the primary key.
select last_error, output, state from instances where id = ?1
