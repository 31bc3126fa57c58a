-- What outcomes send to other instances: written in their commit, removed by what delivers it.
create table dormouse.mail (
    id          bigint primary key generated always as identity, -- in the order in which one sender sent it
    sender      bigint not null,
    seq         bigint not null,  -- the sender's event that sent it
    namespace   text not null,
    kind        text not null,    -- start, signal, cancel
    address     text,             -- id:… or key:…; null: a start without a key
    name        text,             -- the machine to start, or the signal
    dedup_key   text,             -- of the signal
    depth       integer not null, -- how many starts by mail led to it, with this one
    at          timestamptz not null,
    deliver_at  timestamptz not null, -- when it is tried next
    tries       integer not null default 0,
    undelivered text,             -- why it cannot be delivered, until its sender's history says so
    body        json not null     -- the instance to start, the payload, or the reason
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
-- What is to be delivered, and when, are its first entries.
create index mail_due on dormouse.mail (deliver_at, id);
-- The mail of one sender, and what of it goes to one address.
create index mail_sender on dormouse.mail (sender, address, id);

-- How many starts by mail led to an instance.
alter table dormouse.instances add column depth integer not null default 0;
alter type dormouse.arrival add attribute depth integer;
alter type dormouse.decided add attribute mail json;
