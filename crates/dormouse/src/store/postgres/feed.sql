-- The place of a transaction's next events in the feed of changes: a reader goes by it, and must neither miss what is
-- committed late nor see an instance's events out of order.
--
-- It starts with a transaction id that is not below our own, so whoever reads only up to its oldest transaction under
-- way has not passed us before we end; and not below any that has ended when we write, so what an instance's lock made
-- us wait for stands before us. The sequence below it tells apart what that leaves equal.
create or replace function dormouse.feed_place() returns bigint
language plpgsql as $$
begin
    return greatest(
        pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint
    ) << 20;
end
$$;
