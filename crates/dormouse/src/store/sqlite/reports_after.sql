-- What running steps reported after a place, by the primary key.
select p.place, i.id, i.namespace, i.machine, i.queue, i.key, i.step, p.seq, p.at, p.value
from progress p cross join instances i where i.id = p.instance and i.seq = p.seq and i.status = 'executing'
    and p.place > ?1 order by p.place limit ?2
