-- Old events of live instances that a later, equally old event with a state makes superfluous.
-- Events are in order of time by their id, so the walk starts after the last one looked at.
select id, exists (
    select 1 from history later
    where later.instance = h.instance and later.seq > h.seq and later.state is not null and later.at < ?1
)
from history h where id > ?2 and at < ?1
order by id limit ?3
