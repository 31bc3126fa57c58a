-- When the next request in flight is sent again if its sender does not report it, by interactions_flying.
select min(send_at) from interactions indexed by interactions_flying
where transport = ?1 and send_at is not null
    and (status = 'dispatched' or (status = 'pending' and sends > 0 and error is null))
