-- Await units. A unit belongs to one round of its instance: that is how the instance points at it. Whatever changes a
-- status in these two tables holds the instance's lock.
create table dormouse.units (
    id              bigint      primary key,
    instance        bigint      not null,
    round           integer     not null,
    shape           text        not null,
    status          text        not null check (status in ('open', 'completed', 'timed_out', 'failed', 'cancelled')),
    transport       text        not null,
    on_failure      text        not null,
    interactions    integer     not null,                -- how many it has
    quorum          integer,                             -- how many must complete; null: all are waited for
    in_flight       integer,                             -- how many may be unresolved at a time; null: all
    completed       integer     not null default 0,
    failed          integer     not null default 0,      -- or timed out
    next_item       integer     not null,                -- the first that has no place in flight yet
    item_timeout_us bigint,
    outputs_max     bigint      not null,                -- the longest list that may answer it
    opened_at       timestamptz not null,
    deadline        timestamptz,
    closed_at       timestamptz
) with (fillfactor = 75);
create sequence dormouse.unit_ids owned by dormouse.units.id;
create unique index units_round on dormouse.units (instance, round);

create table dormouse.interactions (
    id              bigint      primary key,
    unit            bigint      not null,
    item            integer     not null,                -- its place in the unit, from 0
    instance        bigint      not null,
    namespace       text collate "C" not null,
    machine         text        not null,
    step            text        not null,                -- the one that will see the answer
    transport       text collate "C" not null,
    status          text        not null check (status in ('pending', 'dispatched', 'completed', 'timed_out',
        'failed', 'cancelled')),
    idempotency_key text        not null,
    correlation_id  text collate "C",
    sends           integer     not null default 0,      -- how often it was handed to its transport
    opened_at       timestamptz,                         -- null while it waits for a place in flight
    deadline        timestamptz,
    send_at         timestamptz,                         -- when to send it; a sender moves it on while it tries
    dispatched_at   timestamptz,
    resolved_at     timestamptz,
    assignee        text,
    assigned_until  timestamptz,
    answered        boolean     not null default false,  -- resolved by an answer from outside
    error           text,
    request         json        not null,
    output          json
) with (
    fillfactor = 75,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_limit = 2000
);
create sequence dormouse.interaction_ids owned by dormouse.interactions.id;
-- A unit's items in order.
create unique index interactions_item on dormouse.interactions (unit, item);
-- What is to be sent, and when.
create index interactions_outbox on dormouse.interactions (transport, namespace, send_at, id)
    where send_at is not null;
-- What may be late.
create index interactions_due on dormouse.interactions (unit, deadline)
    where deadline is not null and status in ('pending', 'dispatched');
-- What waits for an answer, oldest first.
create index interactions_open on dormouse.interactions (id)
    where status in ('pending', 'dispatched') and opened_at is not null;
create index interactions_correlation on dormouse.interactions (namespace, correlation_id, id)
    where correlation_id is not null;

alter type dormouse.outcome add attribute unit json;

-- A unit to be opened, and its requests.
create type dormouse.dispatch as (
    shape text, transport text, on_failure text, quorum integer, in_flight integer, item_timeout_us bigint,
    outputs_max bigint, asks json
);
create type dormouse.ask as (request text, idempotency_key text, correlation_id text);

-- An answer to an interaction, perhaps with what a resume token says it was made for.
create type dormouse.completion as (
    ord integer, namespace text, id bigint, correlation_id text, output text, error text, assignee text,
    instance bigint, unit bigint, sends integer, expires_us bigint
);

-- What became of a send.
create type dormouse.send as (ord integer, id bigint, sends integer, outcome text, in_us bigint, error text);
