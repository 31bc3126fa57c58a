-- Few rows, oldest first; one by its id.
select *, revoked_at is null and (expires_at is null or expires_at > dormouse.now()) as is_live from dormouse.api_keys
where ($1::text is null or namespace = $1) and ($2::text is null or id = $2) order by created_at, id
