-- Counts tell the version as well. What was kept did not know it, so everything is counted anew.
drop table counts;
create table counts (
    namespace text    not null,
    queue     text    not null,
    machine   text    not null,
    version   integer not null,
    step      text    not null,
    status    text    not null,
    count     integer not null,
    primary key (namespace, queue, machine, version, step, status)
) strict, without rowid;

insert into counts
select namespace, queue, machine, version, step, status, count(*) from instances where status <> 'executing'
group by namespace, queue, machine, version, step, status;
