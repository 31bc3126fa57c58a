-- The next namespace in which a transport has something to send, by a hop in interactions_outbox.
select namespace from interactions
where transport = ?1 and namespace > ?2 and send_at is not null
order by namespace limit 1
