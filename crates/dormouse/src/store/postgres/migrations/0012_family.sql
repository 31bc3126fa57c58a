-- A child's place in the list that its parent spawned, from 0. What is there already is counted as it came; where
-- children were dropped because their key was taken, their places are not known any more.
alter table dormouse.instances add column parent_index integer;
update dormouse.instances i set parent_index = counted.place
from (
    select id, row_number() over (partition by parent, parent_round order by id) - 1 as place
    from dormouse.instances where parent is not null
) counted
where counted.id = i.id;

alter type dormouse.arrival add attribute parent_index integer;

-- It returns more from here on: the new one is made after this.
do $$
declare
    routine regprocedure;
begin
    for routine in
        select oid from pg_proc where pronamespace = 'dormouse'::regnamespace and proname = 'claim'
    loop
        execute format('drop function %s', routine);
    end loop;
end
$$;
