-- What machines declare as data is known where the code is not. Until a worker registers again, nothing is.
alter table dormouse.machines
    add column migrates_from integer,
    add column declared_at timestamptz, -- when a worker that runs it last registered
    add column told json;

-- The version that asked, as it is the one that reads the answer.
alter table dormouse.interactions add column version integer not null default 1;
update dormouse.interactions n set version = i.version from dormouse.instances i
where i.id = n.instance and i.version <> 1;
