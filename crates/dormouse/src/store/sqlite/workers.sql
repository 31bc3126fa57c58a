select w.id, w.name, w.host, w.pid, w.birth, w.started_at, w.lease_until, w.namespaces, w.queues, w.machines,
    (select count(*) from instances i where i.worker = w.id and i.worker is not null), w.transports
from workers w order by w.id
