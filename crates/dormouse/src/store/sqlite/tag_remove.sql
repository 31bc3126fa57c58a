-- Takes an instance from those with a tag, by the primary key of tags.
delete from tags where namespace = ?1 and tag = ?2 and instance = ?3
