-- How many are parked on a set of names, counted up to a bound, by instances_awaiting.
select count(*) from (
    select 1 from instances indexed by instances_awaiting
    where status = 'awaiting_signal' and awaits = ?1 and (?2 is null or namespace = ?2)
    limit ?3
)
