-- The limit that holds for a lane: that of its name, else that of its family, by the primary key.
select width, rate, period_us, burst from dormouse.limits
where namespace = $1 and width is not null and name = any (array[$2, split_part($2, '/', 1)])
order by length(name) desc limit 1
