-- Adds what a group of writes moved to, or took from, one place.
insert into counts (namespace, queue, machine, step, status, count) values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict (namespace, queue, machine, step, status) do update set count = count + ?6
