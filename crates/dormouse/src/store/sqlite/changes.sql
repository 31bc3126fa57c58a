-- Transitions of all instances in the order of their commits, by the primary key of history: one writer at a time
-- makes its ids grow in that order. The left join keeps the walk bounded where an instance was collected.
select h.id, h.instance, i.namespace, i.machine, i.key, i.queue, i.status, h.kind, h.seq, h.step, h.at, h.started_at, h.took_us
from history h left join instances i on i.id = h.instance
where h.id > ?1 order by h.id limit ?2
