insert into api_keys (id, hash, label, namespace, scope, created_at, expires_at) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
