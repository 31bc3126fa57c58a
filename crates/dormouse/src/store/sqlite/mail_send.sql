-- Writes one piece of mail, in the commit of the outcome that sends it. It is due at once.
insert into mail (sender, seq, namespace, kind, address, name, dedup_key, depth, at, deliver_at, body, keep_us)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, (select depth + 1 from instances where id = ?1), ?8, ?8, ?9, ?10)
