-- Counts tell the version as well. What was kept did not know it, so everything is counted anew, while nobody moves
-- anything: whoever was about to by the functions of before fails, and does not miscount.
truncate dormouse.counts;
alter table dormouse.counts add column version integer not null;
insert into dormouse.counts (namespace, queue, machine, version, step, status, count)
select namespace, queue, machine, version, step, status, count(*) from dormouse.instances where status <> 'executing'
group by namespace, queue, machine, version, step, status;
