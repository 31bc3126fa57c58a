-- Sets a limit, and has all its lanes settled.
insert into limits (namespace, name, width, changed_at, settles_after, rate, period_us, burst, interval_ns)
values (?1, ?2, ?3, ?4, '', ?5, ?6, ?7, ?8)
on conflict do update set
    width = excluded.width, changed_at = excluded.changed_at, settles_after = '', rate = excluded.rate,
    period_us = excluded.period_us, burst = excluded.burst, interval_ns = excluded.interval_ns
