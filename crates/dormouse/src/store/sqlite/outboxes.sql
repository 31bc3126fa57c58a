-- The next outbox (one transport and namespace), by a hop in interactions_outbox. The bound on send_at is past every row
-- of the last one, as in backlog_oldest.sql.
select transport, namespace from interactions indexed by interactions_outbox
where send_at is not null and (transport, namespace, send_at) > (?1, ?2, 9223372036854775807)
order by transport, namespace, send_at, id limit 1
