-- The items of a unit that are late, by interactions_due.
select id, item from interactions
where unit = ?1 and deadline <= ?2 and deadline is not null and status in ('pending', 'dispatched')
order by deadline, item limit ?3
