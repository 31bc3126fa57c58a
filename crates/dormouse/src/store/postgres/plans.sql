-- The verbs' statements are planned once per connection, perhaps on an empty table, and kept: so a plan may only
-- use what stays right when there are a million rows. It also keeps the order in which rows are locked.
do $$
declare
    verb regprocedure;
begin
    for verb in
        select oid from pg_proc
        where pronamespace = 'dormouse'::regnamespace and proname in (
            'insert', 'deliver', 'claim', 'commit_next', 'commit_done', 'commit', 'due', 'reap', 'take_back', 'release', 'cancel_one',
            'cancel_held', 'fail_rival', 'retry', 'pause', 'tag', 'collect_ended', 'collect_events', 'admit', 'tidy',
            'complete', 'outbox', 'sent', 'assign', 'report'
        )
    loop
        execute format('alter function %s set enable_seqscan = off', verb);
        execute format('alter function %s set enable_hashjoin = off', verb);
        execute format('alter function %s set enable_mergejoin = off', verb);
        execute format('alter function %s set enable_bitmapscan = off', verb);
        execute format('alter function %s set plan_cache_mode = force_generic_plan', verb);
        execute format('alter function %s set jit = off', verb);
    end loop;
    -- Two indexes have the rows that can be claimed: the one that has them in order.
    alter function dormouse.claim set enable_sort = off;
end
$$;
