-- One instance's, oldest first, by units_round and interactions_item.
select i.* from units u join interactions i on i.unit = u.id
where u.instance = :instance and i.opened_at is not null and (:after is null or i.id > :after)
    and (:namespace is null or i.namespace = :namespace) and (:status is null or i.status = :status)
    and (:transport is null or i.transport = :transport) and (:machine is null or i.machine = :machine)
    and (:step is null or i.step = :step)
    and (:assignee is null or i.for_assignee = :assignee or (i.assignee = :assignee and i.assigned_until > :now))
    and (:group is null or i.for_group = :group)
    and (:opened_before is null or i.opened_at < :opened_before)
order by i.id limit :limit
