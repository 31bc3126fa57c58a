-- What is runnable in each queue, by the kept counts.
select namespace, queue, sum(count) from counts
where status = 'runnable' and (?1 is null or namespace = ?1)
group by namespace, queue having sum(count) <> 0
order by namespace, queue limit ?2
