-- A row that was just taken, with everything its step may ask for.
select namespace, machine, version, step, seq, attempt, wake, awaits, inbox, barrier, round,
    keeps_history, key, state, parent, parent_round, parent_index, inbox_bytes, lane, key_scope, runnable_at, trace
from instances where id = ?1
