-- Inserts one instance. instances_key_guard decides who gets a key: no change means that it is taken.
insert into instances (
    namespace, machine, version, status, step, seq, queue, priority, runnable_at, wake_at, awaits,
    parent, parent_round, cascade, lane, blocked, keeps_history, key, key_scope, created_at, changed_at, state,
    parent_index, tags, share, depth, trace, cost
)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?9, ?9, ?20, ?21, ?22, ?23,
    case when ?12 is null then 0 else (select depth from instances where id = ?12) end, ?24, ?25)
on conflict (namespace, key_guard) where key_guard is not null do nothing
