-- Adds what a group of writes moved to, or took from, one place.
update counts set count = count + ?7
where namespace = ?1 and queue = ?2 and machine = ?3 and version = ?4 and step = ?5 and status = ?6
