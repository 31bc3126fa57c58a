-- When the run started that led to an event, how long it took, and what it last reported of its progress.
alter table history add column started_at integer;
alter table history add column took_us integer;
alter table history add column progress text;

-- What steps that run report of their progress: the last of each instance, as of the seq at which it was claimed.
create table progress (
    place    integer primary key autoincrement, -- grows with every report
    instance integer not null unique,
    seq      integer not null,
    at       integer not null,
    value    text    not null
) strict;
