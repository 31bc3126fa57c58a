-- Who has a correlation id, by interactions_correlation: what can be answered before what cannot, the newest first.
select id, status in ('pending', 'dispatched') and opened_at is not null and coalesce(deadline > ?3, true)
from interactions
where namespace = ?1 and correlation_id = ?2 and correlation_id is not null
order by 2 desc, id desc limit 2
