-- Renews a lease, and tells what its worker holds. An ended lease is not renewed: its claims may be someone
-- else's by now.
with renewed as (
    update dormouse.workers set lease_until = dormouse.moment(null, $2, dormouse.now())
    where id = $1 and lease_until >= dormouse.now() returning id
)
select exists (select from renewed) as renewed,
    (select array_agg(id order by id) from dormouse.instances
        where worker = $1 and worker is not null) as holds,
    (select array_agg(seq order by id) from dormouse.instances
        where worker = $1 and worker is not null) as seqs,
    (select array_agg(id) from dormouse.instances
        where worker = $1 and worker is not null and cancel_requested) as cancel
