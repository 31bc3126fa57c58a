-- What goes before a row, by instances_claim, each counted up to a bound: rows of its share, and of its namespace those of
-- a more urgent priority.
select (
    select count(*) from (
        select 1 from instances indexed by instances_claim
        where status = 'runnable' and blocked = 0 and paused = 0
            and queue = ?1 and machine = ?2 and version = ?3 and namespace = ?4 and priority = ?5
            and coalesce(share, namespace) = ?6 and (runnable_at, id) < (?7, ?8)
        limit 1000
    )
), (
    select count(*) from (
        select 1 from instances indexed by instances_claim
        where status = 'runnable' and blocked = 0 and paused = 0
            and queue = ?1 and machine = ?2 and version = ?3 and namespace = ?4 and priority < ?5
        limit 1000
    )
), coalesce((select weight from shares where share = ?6), 1)
