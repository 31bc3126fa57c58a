insert into machines (name, version, migrates_from, declared_at, told) values (?1, ?2, ?3, ?4, ?5)
on conflict (name, version) do update
set migrates_from = excluded.migrates_from, declared_at = excluded.declared_at, told = excluded.told
