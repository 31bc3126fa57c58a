-- The next set of awaited names, by a hop in instances_awaiting.
select min(awaits) from instances where status = 'awaiting_signal' and awaits > ?1
