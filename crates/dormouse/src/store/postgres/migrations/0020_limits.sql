-- Limits: how many of a lane, or of each lane of a family, run at a time. A lane without one runs one at a time.
create table dormouse.limits (
    namespace     text collate "C" not null,
    name          text collate "C" not null, -- a lane, or a family: the part of a lane before its first '/'
    width         integer,                   -- null: it is removed, and its lanes are still to be settled
    changed_at    timestamptz not null,
    -- The pass over its lanes that is under way after a change; see limit.sql.
    settles_after text collate "C",          -- lanes after this one are still to be settled; null: none, '': all
    tried_at      timestamptz,               -- when some of them were last settled
    changed_xid   xid8,                      -- transactions before this one may have seen the limit as it was before
    is_last_pass  boolean not null default false, -- all of those had ended when this pass began
    is_busy       boolean not null default false, -- a lane was left out in this pass, because another transaction held it
    primary key (namespace, name)
);
create index limits_settling on dormouse.limits (tried_at) where settles_after is not null;

-- Lanes are walked by their names when the limit of a family changes: only rows that run, could run or wait are in it.
drop index dormouse.instances_lane;
create index instances_lane on dormouse.instances
    (namespace, lane, status, blocked, priority, runnable_at, id)
    where lane is not null and status in ('executing', 'runnable');

-- An outcome may lead to another lane, or out of its lane.
alter type dormouse.decided add attribute moves boolean, add attribute lane text;
