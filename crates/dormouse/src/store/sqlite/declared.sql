-- What workers declared, unless the mark says that it is known. The mark changes with each declaration: the moments of
-- all of them, added up, do not come out the same again.
with state as (select count(*) || ':' || coalesce(sum(declared_at), 0) as mark from machines)
select s.mark, m.name, m.version, m.migrates_from, m.declared_at, m.told
from state s left join machines m on true where s.mark is not ?1
