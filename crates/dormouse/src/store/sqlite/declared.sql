select name, version, migrates_from, declared_at, told from machines
