-- The newest report, of a step that runs or not, by progress_place.
select p.place, i.id, i.namespace, i.machine, i.queue, i.key, i.step, p.seq, p.at, p.value::text as value
from dormouse.progress p join dormouse.instances i on i.id = p.instance order by p.place desc limit 1
