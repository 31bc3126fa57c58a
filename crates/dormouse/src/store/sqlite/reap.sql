-- Claims of workers whose lease is over, by instances_claimed.
select i.id from workers w join instances i on i.worker = w.id
where w.lease_until < ?1 and i.worker is not null
limit ?2
