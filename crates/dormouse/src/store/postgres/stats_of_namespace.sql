-- Every place of a namespace: kept counts, by counts_namespace; and what executes, which is few, by instances_claimed.
select namespace, machine, version, step, status, sum(count)::bigint as count from dormouse.counts where namespace = $1
group by namespace, machine, version, step, status having sum(count) <> 0
union all
select namespace, machine, version, step, status, count(*) from dormouse.instances
where worker is not null and namespace = $1
group by namespace, machine, version, step, status
