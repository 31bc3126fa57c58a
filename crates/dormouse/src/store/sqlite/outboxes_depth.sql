-- What an outbox holds, by interactions_outbox, looked at up to a bound: how many, how many of them failed before, since
-- when the oldest is open, and the one that is tried again first among those that failed.
with some as materialized (
    select id, instance, sends, opened_at, send_at, error from interactions indexed by interactions_outbox
    where transport = ?1 and namespace = ?2 and send_at is not null order by send_at, id limit ?3
)
select count(*), sum(some.error is not null), min(some.opened_at), failing.instance, failing.sends, failing.send_at, failing.error
from some left join (
    select instance, sends, send_at, substr(error, 1, 1000) as error from some where error is not null
    order by send_at, id limit 1
) failing
