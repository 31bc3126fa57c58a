-- Replaces what a running step reported before, if the worker still runs it as it did. A new place tells those who watch.
insert or replace into progress (instance, seq, at, value)
select id, seq, ?4, ?5 from instances where id = ?1 and seq = ?2 and worker = ?3
