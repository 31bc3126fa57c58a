-- What is awaited, by hops over the distinct sets of names in instances_awaiting: how many are parked on each, counted
-- up to a bound, and the one that has waited longest. Why a set is asked for as a range, list_awaiting.sql tells.
with recursive sets (hop, awaits) as (
    (select 1, awaits from dormouse.instances where status = 'awaiting_signal' order by awaits limit 1)
    union all
    select sets.hop + 1, next.awaits from sets cross join lateral (
        select i.awaits from dormouse.instances i
        where i.status = 'awaiting_signal' and i.awaits > sets.awaits order by i.awaits limit 1
    ) next where sets.hop < 1000
)
select sets.awaits, parked.count, longest.id as oldest, longest.changed_at as since
from sets cross join lateral (
    select count(*) as count from (
        select from dormouse.instances i
        where i.status = 'awaiting_signal' and i.awaits >= sets.awaits and i.awaits <= sets.awaits
            and ($1::text is null or i.namespace = $1)
        order by i.awaits, i.runnable_at, i.id limit $2
    ) few
) parked
cross join lateral (
    select i.id, i.changed_at from dormouse.instances i
    where i.status = 'awaiting_signal' and i.awaits >= sets.awaits and i.awaits <= sets.awaits
        and ($1::text is null or i.namespace = $1)
    order by i.awaits, i.runnable_at, i.id limit 1
) longest
order by sets.awaits
