-- The children of an instance, by instances_parent.
select id from instances where parent = ?1 and parent is not null limit ?2
