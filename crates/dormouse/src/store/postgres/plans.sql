-- The verbs' statements are planned once per connection, perhaps on an empty table, and kept: so a plan may only
-- use what stays right when there are a million rows. It also keeps the order in which rows are locked.
--
-- These settings do not choose which side of a join comes first: of two that are equal in price on an empty table, the
-- planner may take the one that walks the whole table for each batch. The statements leave it no such choice. A table
-- is joined by `id = any (array[x])`, which only an index can answer and which gives an index no order that could be
-- useful elsewhere; where a partial index might be walked as a whole, by `lateral (… offset 0)` or a subquery with
-- `limit 1`; and `exists` is left out of conditions, where it would be a join.
do $$
declare
    verb regprocedure;
begin
    for verb in
        select oid from pg_proc
        where pronamespace = 'dormouse'::regnamespace and proname in (
            'insert', 'deliver', 'deliver_what_can_be', 'claim', 'commit_next', 'commit_done', 'commit_plain', 'commit', 'commit_own', 'due',
            'reap', 'take_back', 'release', 'cancel_one',
            'cancel_held', 'fail_rival', 'set_aside', 'reading', 'is_large_round', 'refuse_overfull', 'retry', 'pause', 'tag', 'collect_ended', 'collect_events', 'admit', 'tidy',
            'complete', 'outbox', 'sent', 'lend', 'lend_overdue', 'allows', 'held_until', 'hold_transport', 'let_go', 'set_transport', 'close_breaker', 'judge', 'assign', 'report', 'set_limit', 'settle_limits', 'limit_use',
            'mail_due', 'post', 'send_mail', 'note_undelivered', 'keep', 'receive_kept', 'remove_kept', 'expire_kept',
            'drop_kept', 'fold_kept'
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
