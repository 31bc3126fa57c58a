-- Newest first, by the primary key.
select id, at, namespace, who, what, target, result from audit
where (:before is null or id < :before) and (:who is null or who = :who) and (:what is null or what = :what)
    and (:target is null or target = :target)
order by id desc limit :limit
