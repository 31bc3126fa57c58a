-- Adds what a group of writes moved to, or took from, one place.
insert into counts (namespace, queue, machine, version, step, status, count) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
on conflict (namespace, queue, machine, version, step, status) do update set count = count + ?7
