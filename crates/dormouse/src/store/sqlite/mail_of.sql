-- The mail of one instance that waits, by mail_sender, and never by walking all mail in its order.
select id, sender, seq, kind, name, address, at, deliver_at, tries, undelivered
from mail where sender = ?1 order by +id limit ?2
