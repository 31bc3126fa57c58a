-- Every place: kept counts; and what executes, which is few, by instances_claimed. Without a namespace.
select namespace, machine, version, step, status, sum(count)::bigint as count from dormouse.counts where $1::text is null
group by namespace, machine, version, step, status having sum(count) <> 0
union all
select namespace, machine, version, step, status, count(*) from dormouse.instances where worker is not null
group by namespace, machine, version, step, status
