-- The place of a transaction's next events in the feed of changes: a reader goes by it, and must neither miss what is
-- committed late nor see an instance's events out of order.
--
-- It starts with a transaction id that is not below our own, so whoever reads only up to its oldest transaction under
-- way has not passed us before we end; and not below any that has ended when we write, so what an instance's lock made
-- us wait for stands before us. Below it stands a number that tells apart what that leaves equal: the first of those
-- that the statement's events count on from.
create or replace function dormouse.feed_place() returns bigint
language plpgsql as $$
begin
    return greatest(
        pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint
    ) << 20 | nextval('dormouse.event_ids');
end
$$;

-- The id of a statement's next event. The numbers start again after 1,048,575; one that did so meanwhile goes on above.
create or replace function dormouse.event_id(p_place bigint) returns bigint
language sql volatile as $$
    select p_place + ((nextval('dormouse.event_ids') - p_place) & 1048575)
$$;
