-- The newest report, of a step that runs or not.
select p.place, i.id, i.namespace, i.machine, i.queue, i.key, i.step, p.seq, p.at, p.value
from progress p cross join instances i where i.id = p.instance order by p.place desc limit 1
