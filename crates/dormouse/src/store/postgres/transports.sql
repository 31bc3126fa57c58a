-- Transports in the order of their names, by their primary key, or one of them; with how many requests of each are in
-- flight, by interactions_flying, counted up to a bound, and the time.
select t.name, t.declared::text as declared, t.changed::text as changed, t.changed_at, t.rate_count, t.rate_period_us,
    t.rate_burst, t.in_flight, t.breaker_failures, t.breaker_open_us, t.breaker_cap_us, t.spent, t.spent_at, t.failures,
    t.opens, t.epoch, t.opened_at, t.open_until, t.probe_until, t.error, t.turn, flying.count as flying,
    dormouse.now() as now
from (
    select * from dormouse.transports o
    where case when $1::text is null then o.name > $2::text else o.name = $1::text end order by o.name limit $3
) t
cross join lateral (
    select count(*) as count from (
        select from dormouse.interactions n
        where n.transport = t.name
            and (n.status = 'dispatched' or (n.status = 'pending' and n.sends > 0 and n.error is null))
        order by n.transport, n.send_at, n.id limit $4
    ) counted
) flying
order by t.name
