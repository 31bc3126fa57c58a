-- Old entries of the audit log, by its primary key: entries are in order of time by their id.
delete from audit where id in (
    select id from (select id, at from audit order by id limit ?2) where at < ?1
)
