-- What a transport is to send now in one namespace, by interactions_outbox.
select id from interactions
where transport = ?1 and namespace = ?2 and send_at <= ?3 and send_at is not null
order by send_at, id limit ?4
