insert into dormouse.api_keys (id, hash, label, namespace, scope, created_at, expires_at)
values ($1, $2, $3, $4, $5, dormouse.now(), dormouse.moment($6, $7, dormouse.now()))
returning *, expires_at is null or expires_at > dormouse.now() as is_live
