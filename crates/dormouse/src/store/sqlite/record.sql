-- Appends one event. history_seq keeps each instance's story free of doubles.
insert into history (instance, seq, kind, version, step, at, data, state, started_at, took_us, progress)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
