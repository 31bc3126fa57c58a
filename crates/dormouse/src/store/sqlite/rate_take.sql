-- Writes how much of a lane's bucket is spent.
insert into rates (namespace, lane, until_ns, interval_ns, at_ns) values (?1, ?2, ?3, ?4, ?5)
on conflict do update set until_ns = excluded.until_ns, interval_ns = excluded.interval_ns, at_ns = excluded.at_ns
