-- What a migration makes is its owner's, whoever of the owner's members runs it.
do $$
declare
    owner name;
begin
    select pg_get_userbyid(nspowner) into owner from pg_namespace where nspname = 'dormouse';
    if owner is null then
        create schema dormouse;
    elsif owner <> current_user and pg_has_role(owner, 'member') then
        execute format('set local role %I', owner);
    end if;
end
$$;
create table if not exists dormouse.schema (
    version   integer not null,
    functions text    not null, -- tells the functions of one build from another's
    one       boolean primary key default true check (one)
);
-- The oldest version whose engines may run on it, which a migration sets.
alter table dormouse.schema add column if not exists oldest integer;
insert into dormouse.schema (version, functions) values (0, '') on conflict do nothing;
