-- Words that an instance can be found by: an array in its row, for whoever reads it, and a table in the order of a list.
alter table dormouse.instances add column tags text[] collate "C"; -- sorted; null: none

create table dormouse.tags (
    namespace text collate "C" not null,
    tag       text collate "C" not null,
    instance  bigint not null,
    primary key (namespace, tag, instance)
);

alter type dormouse.arrival add attribute tags text[];

-- It takes more from here on: the new one is made after this.
do $$
declare
    routine regprocedure;
begin
    for routine in
        select oid from pg_proc where pronamespace = 'dormouse'::regnamespace and proname = 'start'
    loop
        execute format('drop function %s', routine);
    end loop;
end
$$;
