-- What each outbox (one transport and namespace) holds, by hops in interactions_outbox and looked at up to a bound: how
-- many, how many of them failed before, since when the oldest is open, and the one that is tried again first among those
-- that failed. With a namespace the hops are over transports alone, so that other tenants' outboxes cost nothing.
with recursive outboxes (hop, transport, namespace) as (
    (
        select 1, o.transport, coalesce($1::text, o.namespace) from dormouse.interactions o
        where o.send_at is not null order by o.transport, o.namespace, o.send_at, o.id limit 1
    )
    union all
    select last.hop + 1, next.transport, coalesce($1::text, next.namespace)
    from outboxes last cross join lateral (
        (
            select o.transport, o.namespace from dormouse.interactions o
            where $1::text is not null and o.send_at is not null and o.transport > last.transport
            order by o.transport, o.namespace, o.send_at, o.id limit 1
        )
        union all
        (
            select o.transport, o.namespace from dormouse.interactions o
            where $1::text is null and o.send_at is not null
                and (o.transport, o.namespace) > (last.transport, last.namespace)
            order by o.transport, o.namespace, o.send_at, o.id limit 1
        )
    ) next where last.hop < 1000
)
select outboxes.transport, outboxes.namespace, held.count, held.failing, held.oldest_at,
    first.instance, first.sends, first.send_at, first.error
from outboxes
cross join lateral (
    select array_agg(s.id order by s.send_at, s.id) as ids, count(*) as count,
        count(s.error) as failing, min(s.opened_at) as oldest_at
    from (
        select i.id, i.send_at, i.opened_at, i.error from dormouse.interactions i
        where i.transport = outboxes.transport and i.namespace = outboxes.namespace and i.send_at is not null
        order by i.transport, i.namespace, i.send_at, i.id limit $2
    ) s
) held
left join lateral (
    select i.instance, i.sends, i.send_at, left(i.error, 1000) as error from dormouse.interactions i
    where i.id = any (held.ids) and i.error is not null
    order by i.send_at, i.id limit 1
) first on true
where held.count > 0
order by outboxes.transport, outboxes.namespace
