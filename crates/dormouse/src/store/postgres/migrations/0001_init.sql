-- The tables, and the shapes in which batches come in. What happens to them is in the functions beside this
-- file: each verb is one statement from outside, and inside it every statement sees what the locks it holds
-- made final.
--
-- Documents (state, payload, output) are `json`, not `jsonb`: they are kept as they came.

create table dormouse.instances (
    id               bigint      primary key,
    namespace        text collate "C" not null,
    machine          text collate "C" not null,
    version          integer     not null,
    status           text collate "C" not null check (status in ('runnable', 'executing', 'scheduled',
        'awaiting_signal', 'awaiting_children', 'awaiting_completion', 'done', 'failed', 'cancelled')),
    step             text        not null,
    seq              bigint      not null,               -- committed transitions; every commit checks it
    attempt          integer     not null default 0,     -- tries of the current step so far
    queue            text collate "C" not null,
    priority         integer     not null,               -- lower runs earlier
    runnable_at      timestamptz not null,               -- its place in the queue and in its lane
    worker           bigint,                             -- who executes it
    wake_at          timestamptz,                        -- when the clock alone makes it runnable
    wake             text,                               -- why it last woke, until it progresses
    awaits           text[] collate "C",                 -- names, sorted, until it progresses
    inbox            integer     not null default 0,     -- signals not yet consumed
    barrier          integer     check (barrier >= 0),   -- ends still to come, until it progresses
    round            integer     not null default 0,     -- how often it has spawned
    parent           bigint,
    parent_round     integer,                            -- which of the parent's rounds it belongs to
    joined           boolean     not null default false, -- its end was taken off the parent's barrier
    cascade          boolean     not null default false, -- cancelling the parent cancels it
    lane             text collate "C",
    blocked          boolean     not null default false, -- runnable, but its lane is held
    paused           boolean     not null default false,
    cancel_requested boolean     not null default false,
    keeps_history    boolean     not null default true,
    key              text collate "C",
    key_scope        text,                               -- null: while live; 'always'; or a list of statuses
    created_at       timestamptz not null,
    changed_at       timestamptz not null,
    ended_at         timestamptz,
    last_error       text,
    output           json,
    state            json        not null
) with (
    -- Room on each page, so that a step that runs ahead is rewritten in place and no index hears of it.
    fillfactor = 75,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000
);
create sequence dormouse.instance_ids owned by dormouse.instances.id;

-- What can run now, and nothing else: parked, paused, lane-blocked rows are not in it.
create index instances_claim on dormouse.instances
    (queue, machine, version, namespace, priority, runnable_at, id)
    where status = 'runnable' and not blocked and not paused;
-- What a worker holds, oldest first.
create index instances_claimed on dormouse.instances (worker, id) where worker is not null;
-- The one clock.
create index instances_due on dormouse.instances (wake_at) where wake_at is not null;
-- Who waits for what.
create index instances_awaiting on dormouse.instances (awaits, id) where status = 'awaiting_signal';
-- A lane's holder and its next in line.
create index instances_lane on dormouse.instances
    (namespace, lane, status, blocked, priority, runnable_at, id) where lane is not null;
-- At most one instance holds a key.
create unique index instances_key_guard on dormouse.instances (namespace, key) where key is not null
    and case
        when key_scope is null then status not in ('done', 'failed', 'cancelled')
        else key_scope = 'always' or strpos(key_scope, status) > 0
    end;
create index instances_key on dormouse.instances (namespace, key, id) where key is not null;
create index instances_parent on dormouse.instances (parent, parent_round, id) where parent is not null;
create index instances_ended on dormouse.instances (ended_at) where ended_at is not null;

create table dormouse.signals (
    instance  bigint      not null,
    id        bigint      not null,                      -- grows in order of arrival
    name      text collate "C" not null,
    dedup_key text collate "C",
    consumed  boolean     not null default false,        -- kept for its dedup key alone
    at        timestamptz not null,
    payload   json        not null,
    primary key (instance, id)
) with (
    fillfactor = 90,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_limit = 2000
);
create sequence dormouse.signal_ids owned by dormouse.signals.id;
create unique index signals_dedup on dormouse.signals (instance, dedup_key) where dedup_key is not null;

create table dormouse.history (
    instance bigint      not null,
    seq      bigint      not null,
    kind     text        not null,
    version  integer     not null,
    step     text        not null,
    at       timestamptz not null,
    data     json,
    state    json,                                       -- null: as after the event before
    primary key (instance, seq)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);

create table dormouse.workers (
    id          bigint      primary key generated always as identity,
    name        text        not null,
    host        text        not null,
    pid         bigint      not null,
    birth       text        not null,                    -- tells a process from others that had its pid
    started_at  timestamptz not null,
    lease_until timestamptz not null,                    -- 1970: ended, its claims may be taken
    namespaces  text[],                                  -- null: every one
    queues      text[]      not null,
    machines    text[]      not null,                    -- and, at the same place, their versions
    versions    integer[]   not null
) with (fillfactor = 50, autovacuum_vacuum_threshold = 100);

-- Machines as their workers declared them, so that SQL alone can start one.
create table dormouse.machines (
    name          text    collate "C" not null,
    version       integer not null,
    steps         text[]  not null,                      -- the first is where an instance starts
    queue         text    not null,
    keeps_history boolean not null,
    primary key (name, version)
);

create table dormouse.paused_queues (
    namespace text collate "C" not null,
    queue     text collate "C" not null,
    at        timestamptz not null,
    primary key (namespace, queue)
);

-- What a verb made possible, for whoever can be poked.
create type dormouse.effects as (
    queues text[], wake_at timestamptz, ended bigint[], cancel bigint[]
);

-- Batches come in as JSON arrays of these. A document in them is a string that holds its text, so that it arrives
-- to the letter.

-- An instance to be inserted.
create type dormouse.arrival as (
    ord integer, namespace text, machine text, version integer, step text, state text, queue text,
    priority integer, at_us bigint, in_us bigint, lane text, key text, key_scope text, keeps boolean,
    forked json, awaits text[], await_at_us bigint, await_in_us bigint, signals json,
    parent bigint, cascade boolean
);

-- A signal to be delivered.
create type dormouse.delivery as (
    ord integer, namespace text, id bigint, key text, name text, payload text, dedup_key text
);

-- What a step returned, to be committed.
create type dormouse.outcome as (
    ord integer, id bigint, seq bigint, version integer, kind text, step text, state text, hold boolean,
    received bigint[], at_us bigint, in_us bigint, error text, names text[], output text,
    children json, quorum integer, cascade boolean, again boolean
);

-- What becomes of one instance: its row as it will be, and one or two events that tell it.
create type dormouse.change as (
    id bigint, status text, version integer, step text, state json, attempt integer,
    runnable_at timestamptz, worker bigint, wake_at timestamptz, wake text, awaits text[], inbox integer,
    barrier integer, round integer, paused boolean, last_error text, output json,
    kind text, data json, then_kind text, then_data json
);
