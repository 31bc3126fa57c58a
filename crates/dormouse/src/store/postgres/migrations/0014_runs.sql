-- When the run started that led to an event, how long it took, and what it last reported of its progress.
alter table dormouse.history
    add column started_at timestamptz, add column took_us bigint, add column progress json;
create type dormouse.run as (started_at timestamptz, took_us bigint, progress json);
alter type dormouse.change add attribute run dormouse.run;
alter type dormouse.outcome add attribute started_us bigint, add attribute took_us bigint, add attribute progress text;
-- Their places are taken by functions with more arguments.
drop function if exists dormouse.commit_next(bigint, bigint[], bigint[], integer[], text[], text[]);
drop function if exists dormouse.commit_done(bigint, bigint[], bigint[], text[]);

drop function if exists
    dormouse.start(text, json, text, text, integer, text, integer, text, timestamptz, text, text[]);

-- What steps that run report of their progress: the last of each instance, as of the seq at which it was claimed.
create sequence dormouse.progress_places;
create table dormouse.progress (
    instance bigint      primary key,
    place    bigint      not null, -- grows with every report
    seq      bigint      not null,
    at       timestamptz not null,
    value    json        not null
) with (fillfactor = 50, autovacuum_vacuum_threshold = 100);
create index progress_place on dormouse.progress (place);
