-- Signals that are kept for instances to come, until those start or the signals expire.
create table kept (
    id        integer primary key autoincrement, -- in the order of arrival
    namespace text    not null,
    key       text    not null, -- of the instance to come
    name      text    not null,
    dedup_key text,
    at        integer not null,
    until     integer not null, -- when it expires
    trace     text, -- in which it was sent
    payload   text    not null
) strict;
-- What an instance with this key gets, in order.
create index kept_key on kept (namespace, key, id);
-- A dedup key is kept once for each key.
create unique index kept_dedup on kept (namespace, key, dedup_key) where dedup_key is not null;
-- A namespace's list.
create index kept_namespace on kept (namespace, id);
-- What has expired, and what expires next.
create index kept_until on kept (until, id);

-- How much is kept in a namespace, so that it can be bounded without looking.
create table kept_counts (
    namespace text    primary key,
    signals   integer not null,
    bytes     integer not null
) strict, without rowid;

-- How long a signal is kept that is sent by mail, in microseconds; null: not at all.
alter table mail add column keep_us integer;
