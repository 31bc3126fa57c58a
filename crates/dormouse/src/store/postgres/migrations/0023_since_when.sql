-- Who waits for what, the one that has waited longest first: a parked row keeps the moment at which it last became
-- runnable, and an instance that parks again has a later one.
drop index dormouse.instances_awaiting;
create index instances_awaiting on dormouse.instances (awaits, runnable_at, id) where status = 'awaiting_signal';
-- What failed, by when it failed.
drop index dormouse.instances_failed;
create index instances_failed on dormouse.instances (ended_at, id) where status = 'failed';
-- Of what is due at one moment, the instance that is there longest wakes first, as on SQLite.
drop index dormouse.instances_due;
create index instances_due on dormouse.instances (wake_at, id) where wake_at is not null;
