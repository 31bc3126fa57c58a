-- Newest first, by audit_namespace.
select id, at, namespace, who, what, target, result from audit
where namespace = :namespace and (:before is null or id < :before) and (:who is null or who = :who)
    and (:what is null or what = :what) and (:target is null or target = :target)
order by id desc limit :limit
