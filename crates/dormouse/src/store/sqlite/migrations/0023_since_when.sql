-- Who waits for what, the one that has waited longest first: a parked row keeps the moment at which it last became
-- runnable, and an instance that parks again has a later one.
drop index instances_awaiting;
create index instances_awaiting on instances (awaits, runnable_at, id) where status = 'awaiting_signal';
-- What failed, by when it failed.
drop index instances_failed;
create index instances_failed on instances (ended_at, id) where status = 'failed';
