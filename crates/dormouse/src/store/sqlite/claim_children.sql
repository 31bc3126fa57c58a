-- One round of a parent's children, by instances_parent.
select id, machine, key, status, output, last_error from instances
where parent = ?1 and parent_round = ?2
order by id
