-- Who may do what, in a database where roles.sql was run. Every migration says it again, for what it added.
do $$
declare
    routine regprocedure;
begin
    if not exists (
        select from pg_namespace where nspname = 'dormouse' and nspowner = to_regrole('dormouse_migrate')::oid
    ) then
        return;
    end if;
    revoke execute on all functions in schema dormouse from public;
    grant usage on schema dormouse to dormouse_engine, dormouse_read, dormouse_caller;
    grant select, insert, update, delete on all tables in schema dormouse to dormouse_engine;
    grant usage, select on all sequences in schema dormouse to dormouse_engine;
    grant execute on all functions in schema dormouse to dormouse_engine;
    grant select on all tables in schema dormouse to dormouse_read;
    if to_regnamespace('dormouse_views') is not null then
        grant usage on schema dormouse_views to dormouse_read;
        grant select on all tables in schema dormouse_views to dormouse_read;
    end if;
    if to_regclass('dormouse.answers') is not null then
        -- What callers were answered is for who sends the same again, and for nobody else.
        revoke select on dormouse.answers from dormouse_read;
    end if;
    if to_regclass('dormouse.schema') is not null then
        -- Which schema it is, only a migration says.
        revoke insert, update, delete on dormouse.schema from dormouse_engine;
    end if;
    for routine in
        select oid from pg_proc
        where pronamespace = 'dormouse'::regnamespace and provolatile <> 'v' and not prosecdef
    loop
        execute format('grant execute on function %s to dormouse_read', routine);
    end loop;
    -- They run with their owner's rights, so that their callers need none of their own.
    for routine in
        select oid from pg_proc
        where pronamespace = 'dormouse'::regnamespace and proname in ('start', 'signal', 'cancel') and prosecdef
    loop
        execute format('grant execute on function %s to dormouse_caller', routine);
    end loop;
end
$$;
