-- The next moment, by instances_due and rate_wakes_due.
select min(at) from (
    select min(wake_at) as at from instances where wake_at is not null
    union all
    select min(at) from rate_wakes
)
