-- The same rows as instances_claim, in one line whatever their namespaces: a worker that serves all of them takes the
-- first, at a cost that does not grow with how many there are.
create index instances_line on instances (queue, machine, version, priority, runnable_at, id)
    where status = 'runnable' and blocked = 0 and paused = 0;
create index paused_queues_queue on paused_queues (queue);
