-- A worker, and the machines it runs as they are declared now.
with declared as (
    insert into dormouse.machines (name, version, steps, queue, keeps_history)
    select * from json_to_recordset($10::json) m
        (name text, version integer, steps text[], queue text, keeps_history boolean)
    order by name, version
    on conflict (name, version) do update set
        steps = excluded.steps, queue = excluded.queue, keeps_history = excluded.keeps_history
    where (machines.steps, machines.queue, machines.keeps_history)
        is distinct from (excluded.steps, excluded.queue, excluded.keeps_history)
)
insert into dormouse.workers (
    name, host, pid, birth, started_at, lease_until, namespaces, queues, machines, versions
)
values ($1, $2, $3, $4, dormouse.now(), dormouse.moment(null, $5, dormouse.now()), $6, $7, $8, $9)
returning id
