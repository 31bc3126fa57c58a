-- The limits of a namespace, by their primary key.
select name, width, changed_at, rate, period_us, burst from limits
where namespace = ?1 and name > ?2 and width is not null
order by name limit ?3
