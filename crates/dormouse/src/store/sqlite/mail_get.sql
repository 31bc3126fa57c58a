-- One piece of mail, to be delivered.
select id, sender, seq, kind, name, address, at, deliver_at, tries, undelivered, namespace, dedup_key, keep_us, depth,
    body
from mail where id = ?1
