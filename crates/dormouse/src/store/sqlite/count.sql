-- Adds what a group of writes moved to, or took from, one place.
update counted set count = count + ?2 where place = ?1
