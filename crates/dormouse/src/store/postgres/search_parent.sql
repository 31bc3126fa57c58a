-- The children of an instance, by instances_parent.
select id from dormouse.instances where parent = $2 and parent is not null limit $1
