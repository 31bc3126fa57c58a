-- Gives a place that was never counted before its number.
insert into counted_places (namespace, queue, machine, version, step, status) values (?1, ?2, ?3, ?4, ?5, ?6)
