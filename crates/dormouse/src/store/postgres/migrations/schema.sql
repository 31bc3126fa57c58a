create schema if not exists dormouse;
create table if not exists dormouse.schema (
    version   integer not null,
    functions text    not null, -- tells the functions of one build from another's
    one       boolean primary key default true check (one)
);
insert into dormouse.schema (version, functions) values (0, '') on conflict do nothing;
