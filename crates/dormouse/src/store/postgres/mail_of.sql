-- The mail of one instance that waits, by mail_sender, and never by walking all mail in its order.
select m.id, m.sender, m.seq, m.kind, m.name, m.address, m.at, m.deliver_at, m.tries, m.undelivered
from (select * from dormouse.mail s where s.sender = $1 offset 0) m order by m.id limit $2
