-- What a server keeps beside the instances: who may come in, what they changed, what they were answered.

create table api_keys (
    id         text    primary key,  -- its public part; the secret part is kept as a hash alone
    hash       blob    not null,
    label      text    not null,
    namespace  text    not null,
    scope      text    not null,
    created_at integer not null,
    expires_at integer,
    revoked_at integer
) strict, without rowid;

create table audit (
    id        integer primary key autoincrement,
    at        integer not null,
    namespace text    not null,
    who       text    not null,
    what      text    not null,
    target    text,
    result    text    not null
) strict;

create index audit_namespace on audit (namespace, id);

create table answers (
    namespace   text    not null,
    key         text    not null,
    fingerprint blob    not null,
    at          integer not null,
    status      integer,             -- null: under way
    body        text,
    primary key (namespace, key)
) strict, without rowid;

create index answers_at on answers (at);
