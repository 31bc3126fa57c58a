-- A share other than its namespace's own: the namespace, U+0001 and the share's name; null: the namespace's own.
alter table dormouse.instances add column share text collate "C";
alter type dormouse.arrival add attribute share text;
-- Weights other than 1.
create table dormouse.shares (
    share     text collate "C" primary key, -- as in the rows; a namespace's own share is the namespace
    namespace text collate "C" not null,
    weight    integer not null check (weight > 0)
);
create index shares_namespace on dormouse.shares (namespace, share);
-- What can run now: shares take turns within a priority, and have their rows in order. One index for workers that serve
-- some namespaces, one for those that serve all.
drop index dormouse.instances_claim;
drop index dormouse.instances_line;
create index instances_claim on dormouse.instances
    (queue, machine, version, namespace, priority, coalesce(share, namespace), runnable_at, id)
    where status = 'runnable' and not blocked and not paused;
create index instances_line on dormouse.instances
    (queue, machine, version, priority, coalesce(share, namespace), runnable_at, id)
    where status = 'runnable' and not blocked and not paused;
drop function if exists dormouse.lines(text, text[], text[], integer[]);
drop function if exists dormouse.shares(text, dormouse.lines, integer);
drop function if exists dormouse.claim(bigint, text, text[], text[], integer[], integer);
drop type dormouse.lines;
-- Rows that stand in one line: those of one source (a machine and version, in one namespace or in all), priority and share.
create type dormouse.line as (
    source integer, machine text, version integer, priority integer, namespace text, share text,
    second boolean,  -- its turn is after that of the last share in order
    weight integer,
    remains integer, -- what the turn under way has left for it
    rows integer     -- how many are asked of it
);
