-- A share other than its namespace's own: the namespace, U+0001 and the share's name; null: the namespace's own.
alter table instances add column share text;
-- Weights other than 1.
create table shares (
    share     text    not null primary key, -- as in the rows; a namespace's own share is the namespace
    namespace text    not null,
    weight    integer not null
) strict, without rowid;
create index shares_namespace on shares (namespace, share);
-- What can run now: shares take turns within a priority, and have their rows in order. One index for workers that serve
-- some namespaces, one for those that serve all.
drop index instances_claim;
drop index instances_line;
create index instances_claim on instances
    (queue, machine, version, namespace, priority, coalesce(share, namespace), runnable_at, id)
    where status = 'runnable' and blocked = 0 and paused = 0;
create index instances_line on instances
    (queue, machine, version, priority, coalesce(share, namespace), runnable_at, id)
    where status = 'runnable' and blocked = 0 and paused = 0;
