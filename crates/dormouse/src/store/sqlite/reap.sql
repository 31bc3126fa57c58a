-- Claims of workers whose lease is over, by instances_claimed. The cross join keeps the few workers outside:
-- left to itself, SQLite walks every claim there is and asks for each whether its worker lives.
select i.id from workers w cross join instances i on i.worker = w.id
where w.lease_until < ?1 and i.worker is not null
order by w.id, i.id limit ?2
