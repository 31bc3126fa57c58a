-- Why an instance was cancelled, and the ancestor whose cancel took it along; until it is retried.
alter table dormouse.instances
    add column cancel_reason text,
    add column cancelled_with bigint;

-- Functions that take or return something else from here on: the new ones are made after this.
do $$
declare
    routine regprocedure;
begin
    for routine in
        select oid from pg_proc where pronamespace = 'dormouse'::regnamespace
            and proname in ('cancel', 'cancel_target', 'cancel_one', 'retry', 'pause')
    loop
        execute format('drop function %s', routine);
    end loop;
end
$$;
