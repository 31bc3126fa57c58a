-- A version below zero, which SQL alone could give an instance, made what counts and lists instances fail for everybody.
update dormouse.instances set version = 0 where version < 0;
update dormouse.history set version = 0 where version < 0;
update dormouse.counts set version = 0 where version < 0;
update dormouse.interactions set version = 0 where version < 0;
alter table dormouse.instances add constraint instances_version check (version >= 0);
