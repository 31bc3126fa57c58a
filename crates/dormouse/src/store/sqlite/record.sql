-- Appends one event. history_seq keeps each instance's story free of doubles.
insert into history (instance, seq, kind, version, step, at, data, state) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
