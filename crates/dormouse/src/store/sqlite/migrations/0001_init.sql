-- Times are microseconds since the epoch. Documents (state, payload, output) are JSON text, stored
-- as it came, and stand last so that reading a row's head never walks their overflow pages.

create table instances (
    id               integer primary key autoincrement, -- autoincrement: an id is never reused
    namespace        text    not null,
    machine          text    not null,
    version          integer not null,
    status           text    not null,
    step             text    not null,
    seq              integer not null,            -- committed transitions; every commit checks it
    attempt          integer not null default 0,  -- tries of the current step so far
    queue            text    not null,
    priority         integer not null,            -- lower runs earlier
    runnable_at      integer not null,            -- its place in the queue and in its lane
    worker           integer,                     -- who executes it
    wake_at          integer,                     -- when the clock alone makes it runnable
    wake             text,                        -- why it last woke, until it progresses
    awaits           text,                        -- JSON array of names, sorted, until it progresses
    inbox            integer not null default 0,  -- signals not yet consumed
    barrier          integer,                     -- ends still to come, until it progresses
    round            integer not null default 0,  -- how often it has spawned
    parent           integer,
    parent_round     integer,                     -- which of the parent's rounds it belongs to
    joined           integer not null default 0,  -- its end was taken off the parent's barrier
    cascade          integer not null default 0,  -- cancelling the parent cancels it
    lane             text,
    blocked          integer not null default 0,  -- runnable, but its lane is held
    paused           integer not null default 0,
    cancel_requested integer not null default 0,
    keeps_history    integer not null default 1,
    key              text,
    key_scope        text,                        -- null: while live; 'always'; or a list of statuses
    key_guard        text generated always as (
        case
            when key is null then null
            when key_scope is null
                then case when status in ('done', 'failed', 'cancelled') then null else key end
            when key_scope = 'always' then key
            when instr(key_scope, status) > 0 then key
        end
    ) virtual,
    created_at       integer not null,
    changed_at       integer not null,
    ended_at         integer,
    last_error       text,
    output           text,
    state            text    not null
) strict;

-- What can run now, and nothing else: parked, paused, lane-blocked rows are not in it.
create index instances_claim on instances (queue, machine, version, namespace, priority, runnable_at, id)
    where status = 'runnable' and blocked = 0 and paused = 0;
-- What a worker holds.
create index instances_claimed on instances (worker) where worker is not null;
-- The one clock.
create index instances_due on instances (wake_at) where wake_at is not null;
-- Who waits for what.
create index instances_awaiting on instances (awaits, id) where status = 'awaiting_signal';
-- A lane's holder and its next in line.
create index instances_lane on instances (namespace, lane, status, blocked, priority, runnable_at, id)
    where lane is not null;
-- At most one instance holds a key.
create unique index instances_key_guard on instances (namespace, key_guard) where key_guard is not null;
create index instances_key on instances (namespace, key, id) where key is not null;
create index instances_parent on instances (parent, parent_round, id) where parent is not null;
create index instances_ended on instances (ended_at) where ended_at is not null;

create table signals (
    id        integer primary key autoincrement, -- grows in order of arrival
    instance  integer not null,
    name      text    not null,
    dedup_key text,
    consumed  integer not null default 0,        -- kept for its dedup key alone
    at        integer not null,
    payload   text    not null
) strict;

create index signals_inbox on signals (instance, consumed, id);
create unique index signals_dedup on signals (instance, dedup_key) where dedup_key is not null;

create table history (
    id       integer primary key,
    instance integer not null,
    seq      integer not null,
    kind     text    not null,
    version  integer not null,
    step     text    not null,
    at       integer not null,
    data     text,
    state    text                                -- null: as after the event before
) strict;

create unique index history_seq on history (instance, seq);

create table workers (
    id          integer primary key autoincrement,
    name        text    not null,
    host        text    not null,
    pid         integer not null,
    birth       text    not null,                -- tells a process from others that had its pid
    started_at  integer not null,
    lease_until integer not null,                -- 0: ended, its claims may be taken
    namespaces  text,                            -- null: every one
    queues      text    not null,
    machines    text    not null
) strict;

create table paused_queues (
    namespace text    not null,
    queue     text    not null,
    at        integer not null,
    primary key (namespace, queue)
) strict, without rowid;
