-- The same for a place that was never counted before.
insert into counts (namespace, queue, machine, version, step, status, count) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
