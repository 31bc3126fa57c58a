-- Inserts one interaction of a unit; one without a place in flight has neither opened_at nor send_at.
insert into interactions (unit, item, instance, namespace, machine, version, step, transport, status, idempotency_key,
    correlation_id, opened_at, deadline, send_at, request, for_assignee, for_group, trace)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'pending', ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
