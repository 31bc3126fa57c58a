-- By instances_awaiting.
select awaits, count(*) from instances where status = 'awaiting_signal' group by awaits order by count(*) desc
