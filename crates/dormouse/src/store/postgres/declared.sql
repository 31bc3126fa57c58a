-- What workers declared, unless the mark says that it is known. The mark changes with each declaration: the moments of
-- all of them, added up, do not come out the same again.
with state as (
    select concat(count(*), ':', sum((extract(epoch from declared_at) * 1000000)::bigint)) as mark
    from dormouse.machines where told is not null
)
select s.mark, m.name, m.version, m.migrates_from, m.declared_at, m.told::text as told
from state s left join dormouse.machines m on m.told is not null where s.mark is distinct from $1
