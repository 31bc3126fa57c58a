-- Notes a request as under way, in the place of one that is forgotten.
insert into answers (namespace, key, fingerprint, at) values (?1, ?2, ?3, ?4)
on conflict (namespace, key) do update set fingerprint = ?3, at = ?4, status = null, body = null
