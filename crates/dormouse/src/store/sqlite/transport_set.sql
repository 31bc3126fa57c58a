-- What limits a transport.
insert into transports (name, declared, changed, changed_at, rate_count, rate_period_us, rate_burst, in_flight,
    breaker_failures, breaker_open_us, breaker_cap_us)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
on conflict do update set declared = excluded.declared, changed = excluded.changed, changed_at = excluded.changed_at,
    rate_count = excluded.rate_count, rate_period_us = excluded.rate_period_us, rate_burst = excluded.rate_burst,
    in_flight = excluded.in_flight, breaker_failures = excluded.breaker_failures,
    breaker_open_us = excluded.breaker_open_us, breaker_cap_us = excluded.breaker_cap_us
