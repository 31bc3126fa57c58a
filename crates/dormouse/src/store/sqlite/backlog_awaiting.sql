-- How many are parked on a set of names, counted up to a bound, and the first of them, by instances_awaiting.
select count(*), min(id) from (
    select id from instances indexed by instances_awaiting
    where status = 'awaiting_signal' and awaits = ?1 and (?2 is null or namespace = ?2)
    order by id limit ?3
)
