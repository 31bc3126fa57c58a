-- One round of a parent's children, by instances_parent. Of those that are done, the output is enough.
select id, machine, key, version, status, step,
    case when status = 'cancelled' then cancel_reason else last_error end, output,
    case when status <> 'done' then state end, parent_index
from instances
where parent = ?1 and parent_round = ?2
order by id
