-- How often the current step's worker died, in a row: as of this number of transitions. A commit moves on from it.
alter table dormouse.instances add column crashes integer not null default 0;
alter table dormouse.instances add column crashes_seq bigint not null default 0;
-- Until when one that was cancelled had been parked on signals, so that a retry parks it for as long.
alter table dormouse.instances add column parked_until timestamptz;
-- What takes claims back is told how many crashes are too many.
drop function if exists dormouse.take_back(bigint[], bigint[], bigint[], boolean);
drop function if exists dormouse.reap(integer);
