select name, version, migrates_from, declared_at, told::text as told from dormouse.machines where told is not null
