-- The same rows as instances_claim, in one line whatever their namespaces: a worker that serves all of them takes the
-- first, at a cost that does not grow with how many there are.
create index instances_line on dormouse.instances (queue, machine, version, priority, runnable_at, id)
    where status = 'runnable' and not blocked and not paused;
create index paused_queues_queue on dormouse.paused_queues (queue);
-- Rows that stand in one line: those of one machine in one queue, of one namespace or, without those, of all.
create type dormouse.lines as (machines text[], versions integer[], namespaces text[]);
-- Claims find their lines another way.
drop function if exists dormouse.backlogs(text, text[], text[], integer[]);
