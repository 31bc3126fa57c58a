-- A limit may also say how many steps of a lane start in a period, with a burst.
alter table limits add column rate integer;        -- so many in a period; null: at any rate
alter table limits add column period_us integer;
alter table limits add column burst integer;       -- how many the bucket holds
alter table limits add column interval_ns integer; -- how long it takes to be filled with one start
create index limits_rated on limits (namespace, name) where interval_ns is not null;
-- The buckets of lanes with a rate that are not full. Only claims write them.
create table rates (
    namespace   text    not null,
    lane        text    not null,
    until_ns    integer not null, -- when all that was taken will have been filled in again
    interval_ns integer not null, -- by which that was reckoned
    at_ns       integer not null, -- when it was last taken from
    primary key (namespace, lane)
) strict, without rowid;
create index rates_until on rates (until_ns);
-- When lanes with a rate are to be settled again.
create table rate_wakes (
    id        integer primary key,
    namespace text    not null,
    lane      text    not null,
    at        integer not null,
    set_at    integer not null -- if that lies ahead, the clock was turned back
) strict;
create index rate_wakes_lane on rate_wakes (namespace, lane, at);
create index rate_wakes_due on rate_wakes (at, id);
create index rate_wakes_set on rate_wakes (set_at);
-- How many starts a step of an instance counts as.
alter table instances add column cost integer not null default 1;
