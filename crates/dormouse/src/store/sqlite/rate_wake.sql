-- Has a lane settled at a moment, unless it is settled before.
insert into rate_wakes (namespace, lane, at, set_at)
select ?1, ?2, ?3, ?4 where not exists (
    select 1 from rate_wakes where namespace = ?1 and lane = ?2 and at <= ?3
)
