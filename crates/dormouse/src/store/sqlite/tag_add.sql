-- Adds an instance to those with a tag, by the primary key of tags.
insert into tags (namespace, tag, instance) values (?1, ?2, ?3) on conflict do nothing
