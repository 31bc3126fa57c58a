-- Reads the whole table: a count, not a hot path.
select namespace, machine, step, status, count(*) from instances group by namespace, machine, step, status
