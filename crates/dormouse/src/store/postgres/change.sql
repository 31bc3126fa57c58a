-- A change, by name. The order of the type's fields is known here alone.
create or replace function dormouse.change_of(
    p_id bigint, p_status text, p_version integer, p_step text, p_state json, p_attempt integer,
    p_runnable_at timestamptz, p_worker bigint, p_wake_at timestamptz, p_wake text, p_awaits text[], p_inbox integer,
    p_barrier integer, p_round integer, p_paused boolean, p_error text, p_output json, p_kind text, p_data json,
    p_then_kind text, p_then_data json, p_run dormouse.run
) returns dormouse.change language sql immutable as $$
    select row(
        p_id, p_status, p_version, p_step, p_state, p_attempt, p_runnable_at, p_worker, p_wake_at, p_wake, p_awaits,
        p_inbox, p_barrier, p_round, p_paused, p_error, p_output, p_kind, p_data, p_then_kind, p_then_data, p_run
    )::dormouse.change
$$;

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
    select dormouse.change_of(
        p_id => i.id, p_status => p_status, p_version => i.version, p_step => i.step, p_state => null,
        p_attempt => coalesce(p_attempt, i.attempt), p_runnable_at => coalesce(p_runnable_at, i.runnable_at),
        p_worker => null, p_wake_at => p_wake_at, p_wake => coalesce(p_wake, i.wake), p_awaits => i.awaits,
        p_inbox => coalesce(p_inbox, i.inbox), p_barrier => coalesce(p_barrier, i.barrier), p_round => i.round,
        p_paused => i.paused, p_error => coalesce(p_error, i.last_error), p_output => null, p_kind => p_kind,
        p_data => p_data, p_then_kind => p_then_kind, p_then_data => p_then_data, p_run => null
    )
$$;
