-- The roles of least privilege, as groups that nobody logs in with. A superuser runs this in the database, before
-- the first migration or after it, and again whenever it has changed: what is there already stays.
--
--   dormouse_migrate  owns the schema and all that is in it, and may bring it up to date
--   dormouse_engine   what engines and clients need, and no change to the schema
--   dormouse_read     may look at everything and change nothing: a dashboard's
--   dormouse_caller   may call dormouse.start, signal and cancel, and not even look at a table
--
-- Then give each program a login of its own:
--
--   create role deploy login password '…' in role dormouse_migrate;
--   create role worker login password '…' in role dormouse_engine;
--   create role dashboard login password '…' in role dormouse_read;
--   create role shop login password '…' in role dormouse_caller;

do $$
declare
    role text;
begin
    foreach role in array array['dormouse_migrate', 'dormouse_engine', 'dormouse_read', 'dormouse_caller'] loop
        begin
            execute format('create role %I nologin', role);
        exception when duplicate_object or unique_violation then
            -- Roles are the whole server's: it was made here before, or for another database.
        end;
    end loop;
end
$$;

-- Whoever owns the schema may migrate it, so its owner needs no right to make schemas in this database. A migration
-- by a member of the owner makes everything the owner's, not the member's.
create schema if not exists dormouse;
alter schema dormouse owner to dormouse_migrate;
create schema if not exists dormouse_views;
alter schema dormouse_views owner to dormouse_migrate;
do $$
declare
    command text;
begin
    for command in
        -- A sequence goes with the table that owns it.
        select format('alter table %s owner to dormouse_migrate', oid::regclass) from pg_class
        where relnamespace in ('dormouse'::regnamespace, 'dormouse_views'::regnamespace) and relkind in ('r', 'p', 'v', 'm')
        union all
        select format('alter type %s owner to dormouse_migrate', reltype::regtype) from pg_class
        where relnamespace = 'dormouse'::regnamespace and relkind = 'c'
        union all
        select format('alter routine %s owner to dormouse_migrate', oid::regprocedure) from pg_proc
        where pronamespace = 'dormouse'::regnamespace
    loop
        execute command;
    end loop;
end
$$;

-- What a later migration adds. Every migration grants by name, too; this covers what is made by hand.
alter default privileges for role dormouse_migrate revoke execute on functions from public;
alter default privileges for role dormouse_migrate in schema dormouse
    grant select, insert, update, delete on tables to dormouse_engine;
alter default privileges for role dormouse_migrate in schema dormouse
    grant usage, select on sequences to dormouse_engine;
alter default privileges for role dormouse_migrate in schema dormouse
    grant execute on functions to dormouse_engine;
alter default privileges for role dormouse_migrate in schema dormouse
    grant select on tables to dormouse_read;
