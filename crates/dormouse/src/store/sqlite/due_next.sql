-- The next moment, by instances_due.
select min(wake_at) from instances where wake_at is not null
