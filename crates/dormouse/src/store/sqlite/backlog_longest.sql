-- Who has been parked longest on a set of names, by instances_awaiting.
select id, changed_at from instances indexed by instances_awaiting
where status = 'awaiting_signal' and awaits = ?1 and (?2 is null or namespace = ?2)
order by runnable_at, id limit 1
