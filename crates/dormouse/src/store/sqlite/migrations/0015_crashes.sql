-- How often the current step's worker died, in a row: as of this number of transitions. A commit moves on from it.
alter table instances add column crashes integer not null default 0;
alter table instances add column crashes_seq integer not null default 0;
-- Until when one that was cancelled had been parked on signals, so that a retry parks it for as long.
alter table instances add column parked_until integer;
