-- Reads the whole table: a count, not a hot path.
select namespace, machine, step, status, count(*) as count
from dormouse.instances group by namespace, machine, step, status
