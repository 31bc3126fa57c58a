-- What waits for an answer, oldest first, by interactions_open.
select * from interactions indexed by interactions_open
where status in ('pending', 'dispatched') and opened_at is not null and (:after is null or id > :after)
    and (:namespace is null or namespace = :namespace) and (:status is null or status = :status)
    and (:transport is null or transport = :transport) and (:machine is null or machine = :machine)
    and (:step is null or step = :step)
    and (:assignee is null or for_assignee = :assignee or (assignee = :assignee and assigned_until > :now))
    and (:group is null or for_group = :group)
    and (:opened_before is null or opened_at < :opened_before)
order by id limit :limit
