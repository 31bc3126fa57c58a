-- Fields of states that instances are found by: which of which machine, and their values beside the rows.
create table indexes (
    machine text    not null,
    field   text    not null,
    path    text    not null, -- as a JSON path
    since   integer not null, -- instances up to this one may be missing
    primary key (machine, field)
) strict, without rowid;

create table fields (
    instance  integer not null,
    field     text    not null,
    namespace text    not null,
    machine   text    not null,
    number    any,    -- a number, as it is
    text      text,   -- the first 200 characters of a text; `true` or `false`
    primary key (instance, field)
) strict, without rowid;
create index fields_number on fields (namespace, machine, field, number, instance) where number is not null;
create index fields_text on fields (namespace, machine, field, text, instance) where text is not null;

-- Every way in which a state is written passes here. Machines that index nothing pay for one look into a small table.
create trigger instances_index_insert after insert on instances
when exists (select 1 from indexes where machine = new.machine)
begin
    insert into fields (instance, field, namespace, machine, number, text)
    select new.id, x.field, new.namespace, new.machine,
        case when x.kind in ('integer', 'real') then json_extract(new.state, x.path) end,
        case x.kind when 'text' then substr(json_extract(new.state, x.path), 1, 200) when 'true' then 'true'
            when 'false' then 'false' end
    from (
        select field, path, json_type(new.state, path) as kind from indexes where machine = new.machine
    ) x
    where x.kind in ('integer', 'real', 'text', 'true', 'false');
end;

create trigger instances_index_update after update of state on instances
when new.state is not old.state and exists (select 1 from indexes where machine = new.machine)
begin
    insert into fields (instance, field, namespace, machine, number, text)
    select new.id, x.field, new.namespace, new.machine,
        case when x.kind in ('integer', 'real') then json_extract(new.state, x.path) end,
        case x.kind when 'text' then substr(json_extract(new.state, x.path), 1, 200) when 'true' then 'true'
            when 'false' then 'false' end
    from (
        select field, path, json_type(new.state, path) as kind from indexes where machine = new.machine
    ) x
    where x.kind in ('integer', 'real', 'text', 'true', 'false')
    on conflict (instance, field) do update set number = excluded.number, text = excluded.text
    where number is not excluded.number or text is not excluded.text;
    delete from fields where instance = new.id and field in (
        select x.field from indexes x where x.machine = new.machine
            and coalesce(json_type(new.state, x.path), 'null') not in ('integer', 'real', 'text', 'true', 'false')
    );
end;

create trigger instances_index_delete after delete on instances
when exists (select 1 from indexes where machine = old.machine)
begin
    delete from fields where instance = old.id;
end;

-- What failed, newest first: where a search of failed instances looks.
create index instances_failed_newest on instances (id) where status = 'failed';
