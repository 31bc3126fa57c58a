-- When a transport is next to send something in one namespace, by interactions_outbox.
select min(send_at) from interactions where transport = ?1 and namespace = ?2 and send_at is not null
