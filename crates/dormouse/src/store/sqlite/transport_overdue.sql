-- What is in flight and was not reported in time, by interactions_flying: in these namespaces, or in all.
select id from interactions indexed by interactions_flying
where transport = ?1 and send_at <= ?2 and (status = 'dispatched' or (status = 'pending' and sends > 0 and error is null))
    and (?3 is null or namespace in (select value from json_each(?3)))
order by send_at, id limit ?4
