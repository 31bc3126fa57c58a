-- A child's place in the list that its parent spawned, from 0. What is there already is counted as it came; where
-- children were dropped because their key was taken, their places are not known any more.
alter table instances add column parent_index integer;
update instances set parent_index = counted.place
from (
    select id, row_number() over (partition by parent, parent_round order by id) - 1 as place
    from instances where parent is not null
) counted
where counted.id = instances.id;
