-- An interaction's deadline is the nearer of its own and its unit's.
update interactions set deadline = min(coalesce(interactions.deadline, u.deadline), u.deadline)
from units u
where u.id = interactions.unit and u.deadline is not null
    and interactions.status in ('pending', 'dispatched') and interactions.opened_at is not null;
