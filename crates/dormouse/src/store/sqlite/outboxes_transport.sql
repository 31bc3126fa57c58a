-- The next transport that has something to send, by a hop in interactions_outbox.
select min(transport) from interactions indexed by interactions_outbox where send_at is not null and transport > ?1
