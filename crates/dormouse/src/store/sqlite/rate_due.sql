-- Lanes with a rate whose moment has come, by rate_wakes_due; and by rate_wakes_set those that waited when the clock was
-- turned back.
select id, namespace, lane from (
    select id, namespace, lane from (
        select id, namespace, lane from rate_wakes where at <= ?1 order by at, id limit ?2
    )
    union
    select id, namespace, lane from (select id, namespace, lane from rate_wakes where set_at > ?1 limit ?2)
)
limit ?2
