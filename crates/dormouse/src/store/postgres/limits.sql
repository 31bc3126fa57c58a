-- The limits of a namespace, by their primary key, with how much of each is in use.
select l.name, l.width, l.rate, l.period_us, l.burst, l.changed_at, u.lanes, u.more_lanes, u.held, u.waiting
from (
    select * from dormouse.limits
    where namespace = $1 and name > $2 and width is not null
    order by name limit $3
) l cross join lateral dormouse.limit_use(l.namespace, l.name, $4, $5) u
order by l.name
