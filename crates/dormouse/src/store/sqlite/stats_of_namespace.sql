-- Every place of a namespace: kept counts, by their primary key; and what executes, which is few, by instances_claimed.
select namespace, machine, version, step, status, sum(count) as count from counts where namespace = ?1
group by namespace, machine, version, step, status having sum(count) <> 0
union all
select namespace, machine, version, step, status, count(*) from instances where worker is not null and namespace = ?1
group by namespace, machine, version, step, status
