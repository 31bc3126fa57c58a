insert into units (instance, round, shape, status, transport, on_failure, interactions, quorum, in_flight,
    next_item, item_timeout_us, outputs_max, opened_at, deadline)
values (?1, ?2, ?3, 'open', ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
