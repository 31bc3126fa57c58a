-- How many rows go before one, by instances_claim, counted up to a bound.
select count(*) from (
    select 1 from instances
    where status = 'runnable' and blocked = 0 and paused = 0
        and queue = ?1 and machine = ?2 and version = ?3 and namespace = ?4
        and (priority, runnable_at, id) < (?5, ?6, ?7)
    limit 1000
)
