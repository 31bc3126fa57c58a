-- Events of all instances in the order of the feed, by history_feed, up to the oldest transaction under way. The left
-- join keeps the walk bounded where an instance was collected.
with frontier as materialized (
    select pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20 as id
)
select frontier.id as frontier, h.id, h.instance, i.namespace, i.machine, i.key, i.queue, i.status, h.kind, h.seq, h.step, h.at,
    h.started_at, h.took_us
from frontier left join lateral (
    select e.id, e.instance, e.kind, e.seq, e.step, e.at, e.started_at, e.took_us from dormouse.history e
    where e.id > $1 and e.id < frontier.id order by e.id limit $2
) h on true
left join dormouse.instances i on i.id = any (array[h.instance])
order by h.id
