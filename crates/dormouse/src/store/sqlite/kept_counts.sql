-- How much is kept in each namespace, or in one.
select namespace, signals, bytes from kept_counts
where signals > 0 and (?1 is null or namespace = ?1) order by namespace limit ?2
