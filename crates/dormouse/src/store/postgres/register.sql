-- A worker, and the machines it runs as they are declared now.
with declared as (
    insert into dormouse.machines (name, version, steps, queue, keeps_history, migrates_from, declared_at, told)
    select m.*, dormouse.now(), told from json_array_elements($10::json) told, json_to_record(told) m
        (name text, version integer, steps text[], queue text, keeps_history boolean, migrates_from integer)
    order by m.name, m.version
    on conflict (name, version) do update set
        steps = excluded.steps, queue = excluded.queue, keeps_history = excluded.keeps_history,
        migrates_from = excluded.migrates_from, declared_at = excluded.declared_at, told = excluded.told
)
insert into dormouse.workers (
    name, host, pid, birth, started_at, lease_until, namespaces, queues, machines, versions
)
values ($1, $2, $3, $4, dormouse.now(), dormouse.moment(null, $5, dormouse.now()), $6, $7, $8, $9)
returning id
