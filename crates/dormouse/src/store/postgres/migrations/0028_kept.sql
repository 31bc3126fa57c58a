-- Signals that are kept for instances to come, until those start or the signals expire.
create table dormouse.kept (
    id        bigint primary key, -- in the order of arrival
    namespace text collate "C" not null,
    key       text collate "C" not null, -- of the instance to come
    name      text collate "C" not null,
    dedup_key text collate "C",
    at        timestamptz not null,
    until     timestamptz not null, -- when it expires
    trace     text, -- in which it was sent
    payload   json not null
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
create sequence dormouse.kept_ids owned by dormouse.kept.id;
-- What an instance with this key gets, in order.
create index kept_key on dormouse.kept (namespace, key, id);
-- A dedup key is kept once for each key.
create unique index kept_dedup on dormouse.kept (namespace, key, dedup_key) where dedup_key is not null;
-- A namespace's list.
create index kept_namespace on dormouse.kept (namespace, id);
-- What has expired, and what expires next.
create index kept_until on dormouse.kept (until, id);

-- Keys for which something is kept: who adds to it or takes from it locks this row.
create table dormouse.kept_keys (
    namespace text collate "C" not null,
    key       text collate "C" not null,
    primary key (namespace, key)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- How much is kept in a namespace: rows are only added, and folded now and then, so that nobody waits for another.
create table dormouse.kept_counts (
    namespace text collate "C" not null,
    signals   bigint not null,
    bytes     bigint not null
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
create index kept_counts_namespace on dormouse.kept_counts (namespace);

-- How long a signal is kept that is sent by mail, in microseconds; null: not at all.
alter table dormouse.mail add column keep_us bigint;
