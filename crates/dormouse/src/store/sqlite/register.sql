insert into workers (name, host, pid, birth, started_at, lease_until, namespaces, queues, machines, transports)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
