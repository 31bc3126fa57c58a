-- What outcomes send to other instances: written in their commit, removed by what delivers it.
create table mail (
    id          integer primary key autoincrement, -- in the order in which it was sent
    sender      integer not null,
    seq         integer not null, -- the sender's event that sent it
    namespace   text    not null,
    kind        text    not null, -- start, signal, cancel
    address     text,             -- id:… or key:…; null: a start without a key
    name        text,             -- the machine to start, or the signal
    dedup_key   text,             -- of the signal
    depth       integer not null, -- how many starts by mail led to it, with this one
    at          integer not null,
    deliver_at  integer not null, -- when it is tried next
    tries       integer not null default 0,
    undelivered text,             -- why it cannot be delivered, until its sender's history says so
    body        text    not null  -- the instance to start, the payload, or the reason
) strict;
-- What is to be delivered, and when, are its first entries.
create index mail_due on mail (deliver_at, id);
-- The mail of one sender, and what of it goes to one address.
create index mail_sender on mail (sender, address, id);

-- How many starts by mail led to an instance.
alter table instances add column depth integer not null default 0;
