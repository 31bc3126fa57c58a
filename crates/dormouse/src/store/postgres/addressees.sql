-- Whose instances these are, and what they await: enough to check signals for them. In the order of the targets.
select i.machine, i.version, i.awaits
from unnest($2::bigint[], $3::text[]) with ordinality t (id, key, ord)
left join dormouse.instances i on i.id = any (array[dormouse.find($1, t.id, t.key)])
order by t.ord
