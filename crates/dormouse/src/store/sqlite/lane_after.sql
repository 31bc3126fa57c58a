-- The next lane after a name that is in use, up to another name, by instances_lane.
select lane from instances
where lane is not null and status in ('executing', 'runnable') and namespace = ?1 and lane > ?2 and lane < ?3
order by lane limit 1
