-- Reads the whole table: a count, not a hot path.
select machine, step, status, count(*) from instances group by machine, step, status
