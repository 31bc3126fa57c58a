-- Fields of states that instances are found by: which of which machine, and their values beside the rows.
create table dormouse.indexes (
    machine text collate "C" not null,
    field   text collate "C" not null,
    path    text[] not null,
    since   bigint not null, -- instances up to this one may be missing
    primary key (machine, field)
);

create table dormouse.fields (
    instance  bigint not null,
    field     text collate "C" not null,
    namespace text collate "C" not null,
    machine   text collate "C" not null,
    number    numeric,
    text      text collate "C", -- the first 200 characters of a text; `true` or `false`
    primary key (instance, field)
);
create index fields_number on dormouse.fields (namespace, machine, field, number, instance) where number is not null;
create index fields_text on dormouse.fields (namespace, machine, field, text, instance) where text is not null;

-- Whether fields of its state are indexed, so that a trigger need not look for those of others.
alter table dormouse.instances add column indexed boolean;

-- Every way in which a state is written passes here. What they do is in indexes.sql.
create function dormouse.index_state() returns trigger language plpgsql as 'begin return null; end';
create function dormouse.unindex_state() returns trigger language plpgsql as 'begin return null; end';
create trigger instances_index_insert after insert on dormouse.instances
    for each row when (new.indexed) execute function dormouse.index_state();
create trigger instances_index_update after update of state on dormouse.instances
    for each row when (new.indexed) execute function dormouse.index_state();
create trigger instances_index_delete after delete on dormouse.instances
    for each row when (old.indexed) execute function dormouse.unindex_state();

-- What failed, newest first: where a search of failed instances looks.
create index instances_failed_newest on dormouse.instances (id) where status = 'failed';
