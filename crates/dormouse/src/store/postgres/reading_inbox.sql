-- What waits for one instance, in order of arrival, by the primary key.
select id, name, payload::text as payload, dedup_key, at, trace from dormouse.signals
where instance = $1 and not consumed order by id
