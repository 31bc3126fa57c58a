-- The limit of a name, by its primary key.
select name, width, changed_at, rate, period_us, burst from limits
where namespace = ?1 and name = ?2 and width is not null
