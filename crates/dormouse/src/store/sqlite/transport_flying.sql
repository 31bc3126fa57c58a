-- How many requests of a transport are in flight, by interactions_flying, counted up to a bound.
select count(*) from (
    select 1 from interactions indexed by interactions_flying
    where transport = ?1 and (status = 'dispatched' or (status = 'pending' and sends > 0 and error is null)) limit ?2
)
