-- Limits: how many of a lane, or of each lane of a family, run at a time. A lane without one runs one at a time.
create table limits (
    namespace     text    not null,
    name          text    not null, -- a lane, or a family: the part of a lane before its first '/'
    width         integer,          -- null: it is removed, and its lanes are still to be settled
    changed_at    integer not null,
    settles_after text,             -- lanes after this one are still to be settled; null: none, '': all
    primary key (namespace, name)
) strict, without rowid;
create index limits_settling on limits (namespace, name) where settles_after is not null;

-- Lanes are walked by their names when the limit of a family changes: only rows that run, could run or wait are in it.
drop index instances_lane;
create index instances_lane on instances (namespace, lane, status, blocked, priority, runnable_at, id)
    where lane is not null and status in ('executing', 'runnable');
