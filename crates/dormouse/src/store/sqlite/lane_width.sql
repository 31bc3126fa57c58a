-- What the limit of a name says, by its primary key.
select width, interval_ns, burst, changed_at from limits where namespace = ?1 and name = ?2 and width is not null
