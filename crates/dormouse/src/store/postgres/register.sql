-- A worker, and the machines it runs as they are declared now.
with declared as (
    insert into dormouse.machines (name, version, steps, queue, keeps_history, migrates_from, declared_at, told)
    select m.*, dormouse.now(), told from json_array_elements($10::json) told, json_to_record(told) m
        (name text, version integer, steps text[], queue text, keeps_history boolean, migrates_from integer)
    order by m.name, m.version
    on conflict (name, version) do update set
        steps = excluded.steps, queue = excluded.queue, keeps_history = excluded.keeps_history,
        migrates_from = excluded.migrates_from, declared_at = excluded.declared_at, told = excluded.told
), indexed as (
    -- Instances that are there already may be missing in an index, and so may those that start just now: a margin is
    -- left for them. A machine that was never declared and has none started anew.
    insert into dormouse.indexes (machine, field, path, since)
    select told ->> 'name', field, string_to_array(field, '.'), case
        when exists (select from dormouse.machines m where m.name = told ->> 'name')
            or exists (select from dormouse.counts c where c.machine = told ->> 'name')
        then (select last_value + 10000 from dormouse.instance_ids) else 0
    end
    from json_array_elements($10::json) told, json_array_elements_text(told -> 'indexes') field
    order by 1, 2
    on conflict do nothing
)
insert into dormouse.workers (
    name, host, pid, birth, started_at, lease_until, namespaces, queues, machines, versions, transports
)
values ($1, $2, $3, $4, dormouse.now(), dormouse.moment(null, $5, dormouse.now()), $6, $7, $8, $9, $11)
returning id
