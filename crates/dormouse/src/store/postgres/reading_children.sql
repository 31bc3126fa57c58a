-- One round of one parent's children, by instances_parent. Of those that are done, the output is enough.
select id, parent_index, machine, key, version, status, step,
    case when status = 'cancelled' then cancel_reason else last_error end as error, output::text as output,
    case when status <> 'done' then state::text end as state
from dormouse.instances where parent = $1 and parent_round = $2 and parent is not null order by id
