-- An outcome as a worker decided it: the row as it will be, by name, what it was decided by, and what only the database
-- knows to fill in. It takes the place of the outcome that the database decided on; with it go the functions that took one.
drop type dormouse.outcome cascade;
create type dormouse.decided as (
    ord integer, id bigint, seq bigint,
    again boolean,        -- the answer to it was lost before
    inbox_seen integer,   -- decided by an inbox of so many signals; null: by none
    seen_last bigint,     -- the last of them
    status text, version integer, step text, state text, attempt integer,
    keeps_place boolean,  -- in its queue
    at_us bigint, in_us bigint, -- a moment, or one counted from now
    arms boolean,         -- whether the clock wakes it then
    wake text, awaits text[], barrier integer, round integer, last_error text, output text,
    consumes bigint[], drops_inbox boolean,
    kind text, data text,
    moment text,          -- the field of that event that holds the moment
    then_kind text, then_data text,
    started_us bigint, took_us bigint, progress text,
    children json, quorum integer, counts_done boolean, fail_fast boolean, cancels_rest boolean, cascade boolean,
    unit json
);
