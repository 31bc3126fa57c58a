-- A limit may also say how many steps of a lane start in a period, with a burst.
alter table dormouse.limits
    add column rate integer,         -- so many in a period; null: at any rate
    add column period_us bigint,
    add column burst integer,        -- how many the bucket holds
    add column interval_ns bigint;   -- how long it takes to be filled with one start
create index limits_rated on dormouse.limits (namespace, name) where interval_ns is not null;
-- The buckets of lanes with a rate that are not full. Only claims write them.
create table dormouse.rates (
    namespace   text collate "C" not null,
    lane        text collate "C" not null,
    until_ns    bigint not null, -- when all that was taken will have been filled in again
    interval_ns bigint not null, -- by which that was reckoned
    at_ns       bigint not null, -- when it was last taken from
    primary key (namespace, lane)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
create index rates_until on dormouse.rates (until_ns);
-- When lanes with a rate are to be settled again. Rows are only added and removed: a claim, which has not locked the lane,
-- waits for nobody here.
create table dormouse.rate_wakes (
    id        bigint primary key generated always as identity,
    namespace text collate "C" not null,
    lane      text collate "C" not null,
    at        timestamptz not null,
    set_at    timestamptz not null -- if that lies ahead, the clock was turned back
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
create index rate_wakes_lane on dormouse.rate_wakes (namespace, lane, at);
create index rate_wakes_due on dormouse.rate_wakes (at, id);
create index rate_wakes_set on dormouse.rate_wakes (set_at);
-- How many starts a step of an instance counts as.
alter table dormouse.instances add column cost integer not null default 1;
alter type dormouse.arrival add attribute cost integer;
