insert into dormouse.audit (at, namespace, who, what, target, result)
select dormouse.now(), namespace, who, what, target, result
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) with ordinality
    entry (namespace, who, what, target, result, place)
order by place
