-- What one running step reported last.
select p.place, i.id, i.namespace, i.machine, i.queue, i.key, i.step, p.seq, p.at, p.value
from progress p join instances i on i.id = p.instance and i.seq = p.seq and i.status = 'executing'
where p.instance = ?1 limit ?2
