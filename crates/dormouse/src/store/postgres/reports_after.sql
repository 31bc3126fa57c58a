-- What running steps reported after a place, by progress_place.
select p.place, i.id, i.namespace, i.machine, i.queue, i.key, i.step, p.seq, p.at, p.value::text as value
from dormouse.progress p join dormouse.instances i on i.id = p.instance and i.seq = p.seq and i.status = 'executing'
where p.place > $1 order by p.place limit $2
