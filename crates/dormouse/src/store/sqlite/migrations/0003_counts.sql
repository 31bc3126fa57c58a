-- How many instances are where. What executes is not in it: that is counted by instances_claimed.
create table counts (
    namespace text    not null,
    queue     text    not null,
    machine   text    not null,
    step      text    not null,
    status    text    not null,
    count     integer not null,
    primary key (namespace, queue, machine, step, status)
) strict, without rowid;

insert into counts
select namespace, queue, machine, step, status, count(*) from instances where status <> 'executing'
group by namespace, queue, machine, step, status;

-- What failed is looked for more than anything else, and is few among many.
create index instances_failed on instances (id) where status = 'failed';
