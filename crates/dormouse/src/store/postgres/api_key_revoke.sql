-- Revoking twice keeps the first moment.
update dormouse.api_keys set revoked_at = coalesce(revoked_at, dormouse.now())
where id = $1 and ($2::text is null or namespace = $2) returning *, false as is_live
