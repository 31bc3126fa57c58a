select w.id, w.name, w.host, w.pid, w.birth, w.started_at, w.lease_until, w.namespaces, w.queues, w.machines,
    w.versions, w.transports,
    (select count(*) from dormouse.instances i where i.worker = w.id and i.worker is not null) as claims
from dormouse.workers w order by w.id
