-- Await units. A unit belongs to one round of its instance: that is how the instance points at it.

create table units (
    id              integer primary key autoincrement,
    instance        integer not null,
    round           integer not null,
    shape           text    not null,
    status          text    not null,
    transport       text    not null,
    on_failure      text    not null,
    interactions    integer not null,            -- how many it has
    quorum          integer,                     -- how many must complete; null: all are waited for
    in_flight       integer,                     -- how many may be unresolved at a time; null: all
    completed       integer not null default 0,
    failed          integer not null default 0,  -- or timed out
    next_item       integer not null,            -- the first that has no place in flight yet
    item_timeout_us integer,
    outputs_max     integer not null,            -- the longest list that may answer it
    opened_at       integer not null,
    deadline        integer,
    closed_at       integer
) strict;

create unique index units_round on units (instance, round);

create table interactions (
    id              integer primary key autoincrement, -- autoincrement: an id is never reused
    unit            integer not null,
    item            integer not null,            -- its place in the unit, from 0
    instance        integer not null,
    namespace       text    not null,
    machine         text    not null,
    step            text    not null,            -- the one that will see the answer
    transport       text    not null,
    status          text    not null,
    idempotency_key text    not null,
    correlation_id  text,
    sends           integer not null default 0,  -- how often it was handed to its transport
    opened_at       integer,                     -- null while it waits for a place in flight
    deadline        integer,
    send_at         integer,                     -- when to send it; a sender moves it on while it tries
    dispatched_at   integer,
    resolved_at     integer,
    assignee        text,
    assigned_until  integer,
    answered        integer not null default 0,  -- resolved by an answer from outside
    error           text,
    request         text    not null,
    output          text
) strict;

-- A unit's items in order.
create unique index interactions_item on interactions (unit, item);
-- What is to be sent, and when.
create index interactions_outbox on interactions (transport, namespace, send_at, id) where send_at is not null;
-- What may be late.
create index interactions_due on interactions (unit, deadline)
    where deadline is not null and status in ('pending', 'dispatched');
-- What waits for an answer, oldest first.
create index interactions_open on interactions (id)
    where status in ('pending', 'dispatched') and opened_at is not null;
create index interactions_correlation on interactions (namespace, correlation_id, id)
    where correlation_id is not null;
