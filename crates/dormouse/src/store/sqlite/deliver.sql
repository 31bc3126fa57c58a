-- Stores one signal. signals_dedup refuses a dedup key seen before: no change means a duplicate.
insert into signals (instance, name, dedup_key, at, payload, trace) values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict (instance, dedup_key) where dedup_key is not null do nothing
