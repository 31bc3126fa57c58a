insert into workers (name, host, pid, birth, started_at, lease_until, namespaces, queues, machines)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
