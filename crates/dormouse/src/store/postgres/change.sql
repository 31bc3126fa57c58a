-- A change that SQL decides by itself, by name: what is not named stays as it is, and the row lets go of its worker and its
-- moment. This is what is decided inside somebody else's transaction, or for rows that no worker holds: a signal's wake
-- (deliver.sql), the clock's (due.sql), a barrier (apply.sql), a unit (unit.sql), operators (operate.sql, amend.sql) and
-- lost claims (reap.sql). The rules of the same names in Rust say the same; the tests hold the two against each other.
create or replace function dormouse.changed(
    i dormouse.instances, p_status text, p_runnable_at timestamptz default null, p_wake_at timestamptz default null,
    p_wake text default null, p_inbox integer default null, p_barrier integer default null,
    p_attempt integer default null, p_error text default null, p_kind text default null, p_data json default null,
    p_then_kind text default null, p_then_data json default null
) returns dormouse.change language sql immutable as $$
    select row(
        i.id, p_status, i.version, i.step, null, coalesce(p_attempt, i.attempt), coalesce(p_runnable_at, i.runnable_at),
        null, p_wake_at, coalesce(p_wake, i.wake), i.awaits, coalesce(p_inbox, i.inbox), coalesce(p_barrier, i.barrier),
        i.round, i.paused, coalesce(p_error, i.last_error), null, p_kind, p_data, p_then_kind, p_then_data, null
    )::dormouse.change
$$;
