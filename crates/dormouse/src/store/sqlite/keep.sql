-- Keeps a signal for an instance to come.
insert into kept (namespace, key, name, dedup_key, at, until, payload, trace)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
