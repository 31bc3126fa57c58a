-- What a server keeps beside the instances: who may come in, what they changed, what they were answered.

create table dormouse.api_keys (
    id         text collate "C" primary key,             -- its public part; the secret part is kept as a hash alone
    hash       bytea       not null,
    label      text        not null,
    namespace  text collate "C" not null,
    scope      text        not null,
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz
);

create table dormouse.audit (
    id        bigint      primary key generated always as identity,
    at        timestamptz not null,
    namespace text collate "C" not null,
    who       text        not null,
    what      text        not null,
    target    text,
    result    text        not null
);
create index audit_namespace on dormouse.audit (namespace, id);

create table dormouse.answers (
    namespace   text collate "C" not null,
    key         text collate "C" not null,
    fingerprint bytea       not null,
    at          timestamptz not null,
    status      integer,                                 -- null: under way
    body        text,
    primary key (namespace, key)
);
create index answers_at on dormouse.answers (at);
