-- Every place: kept counts; and what executes, which is few, by instances_claimed. Without a namespace.
select namespace, machine, version, step, status, sum(count) as count from counts where ?1 is null
group by namespace, machine, version, step, status having sum(count) <> 0
union all
select namespace, machine, version, step, status, count(*) from instances where worker is not null
group by namespace, machine, version, step, status
