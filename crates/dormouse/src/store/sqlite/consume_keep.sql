-- Consumes one received signal whose dedup key must be remembered for the instance's life.
update signals set consumed = 1 where id = ?1 and instance = ?2 and consumed = 0
returning name, payload
