-- When the next item of a unit is late, by interactions_due.
select min(deadline) from interactions
where unit = ?1 and deadline is not null and status in ('pending', 'dispatched')
