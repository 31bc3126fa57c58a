-- An interaction's deadline is the nearer of its own and its unit's.
update dormouse.interactions n set deadline = least(n.deadline, u.deadline)
from dormouse.units u
where u.id = n.unit and u.deadline is not null
    and n.status in ('pending', 'dispatched') and n.opened_at is not null;
