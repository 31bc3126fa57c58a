-- Old events of live instances that a later, equally old event with a state makes superfluous; but not one
-- whose state the next event still stands on: that one goes in the next sweep.
-- Events are in order of time by their id, so the walk starts after the last one looked at.
select id, exists (
    select 1 from history later
    where later.instance = h.instance and later.seq > h.seq and later.state is not null and later.at < ?1
) and (h.state is null or (
    select next.state is not null from history next
    where next.instance = h.instance and next.seq > h.seq order by next.seq limit 1
))
from history h where id > ?2 and at < ?1
order by id limit ?3
