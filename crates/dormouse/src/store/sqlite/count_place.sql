-- The number of a place.
select id from counted_places
where namespace = ?1 and queue = ?2 and machine = ?3 and version = ?4 and step = ?5 and status = ?6
