-- Adds to what is kept in a namespace.
insert into kept_counts (namespace, signals, bytes) values (?1, ?2, ?3)
on conflict (namespace) do update set signals = signals + excluded.signals, bytes = bytes + excluded.bytes
