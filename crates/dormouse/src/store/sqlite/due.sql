-- Rows whose moment has come, by instances_due.
select id from instances where wake_at <= ?1 order by wake_at limit ?2
