-- By instances_awaiting.
select awaits, count(*) as count from dormouse.instances where status = 'awaiting_signal'
group by awaits order by count(*) desc
