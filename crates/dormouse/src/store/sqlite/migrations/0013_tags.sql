-- Words that an instance can be found by: an array in its row, for whoever reads it, and a table in the order of a list.
alter table instances add column tags text; -- JSON array, sorted; null: none

create table tags (
    namespace text    not null,
    tag       text    not null,
    instance  integer not null,
    primary key (namespace, tag, instance)
) strict, without rowid;
