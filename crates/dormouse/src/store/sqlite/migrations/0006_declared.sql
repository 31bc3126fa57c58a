-- Machines as their workers declared them: what is declared as data is known where the code is not.
create table machines (
    name          text    not null,
    version       integer not null,
    migrates_from integer not null,
    declared_at   integer not null, -- when a worker that runs it last registered
    told          text    not null,
    primary key (name, version)
) strict, without rowid;

-- The version that asked, as it is the one that reads the answer.
alter table interactions add column version integer not null default 1;
update interactions set version = i.version from instances i where i.id = interactions.instance;
