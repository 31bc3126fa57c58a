-- Sets a limit, and has all its lanes settled.
insert into limits (namespace, name, width, changed_at, settles_after) values (?1, ?2, ?3, ?4, '')
on conflict do update set width = excluded.width, changed_at = excluded.changed_at, settles_after = ''
