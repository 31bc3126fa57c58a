-- A count is found by the number of its place. With many tenants a group of writes changes many counts, and rows of two numbers
-- keep them on few pages.
create table counted_places (
    id        integer primary key,
    namespace text    not null,
    queue     text    not null,
    machine   text    not null,
    version   integer not null,
    step      text    not null,
    status    text    not null,
    unique (namespace, queue, machine, version, step, status)
) strict;

create table counted (
    place integer primary key,
    count integer not null
) strict;

insert into counted_places (namespace, queue, machine, version, step, status)
select namespace, queue, machine, version, step, status from counts where count <> 0;

insert into counted
select counted_places.id, counts.count from counts
join counted_places using (namespace, queue, machine, version, step, status);

drop table counts;

create view counts as
select namespace, queue, machine, version, step, status, count
from counted_places cross join counted on counted.place = counted_places.id;
