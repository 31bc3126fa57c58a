-- Of these rows, by the primary key, those that meet every condition.
select i.id, i.namespace, i.machine, i.version, i.key, i.status, i.step, i.seq, i.attempt, i.queue, i.priority,
    i.lane, i.share, i.trace, i.cost, i.blocked, i.paused, i.cancel_requested, i.cancel_reason, i.cancelled_with, i.tags, i.parent,
    i.parent_round, i.parent_index, i.awaits, i.wake_at, i.wake, i.inbox, i.barrier, i.round, i.worker,
    substr(i.last_error, 1, 1000) as last_error, i.created_at, i.changed_at, i.ended_at
from json_each(:ids) candidate cross join instances i on i.id = candidate.value
where (:after is null or case when :oldest then i.id > :after else i.id < :after end)
    and (:namespace is null or i.namespace = :namespace) and (:machine is null or i.machine = :machine)
    and (:status is null or i.status = :status) and (:queue is null or i.queue = :queue)
    and (:created_from is null or i.created_at >= :created_from)
    and (:created_before is null or i.created_at < :created_before)
    and (:key is null or (i.key >= :key and i.key < :key_end))
    and (:roots = 0 or i.parent is null)
    and (:tags is null or not exists (
        select 1 from json_each(:tags) wanted where wanted.value not in (select value from json_each(i.tags))
    ))
    and (:version is null or i.version = :version) and (:step is null or i.step = :step)
    and (:statuses is null or i.status in (select value from json_each(:statuses)))
    and (:changed_from is null or i.changed_at >= :changed_from)
    and (:changed_before is null or i.changed_at < :changed_before)
    and (:ended_from is null or i.ended_at >= :ended_from)
    and (:ended_before is null or i.ended_at < :ended_before)
    and (:error is null or instr(lower(i.last_error), lower(:error)) > 0)
    and (:parent is null or i.parent = :parent)
    and (:awaiting is null or (
        i.status = 'awaiting_signal' and :awaiting in (select value from json_each(i.awaits))
    ))
    and (:conditions is null or not exists (
        select 1 from (
            select c.value ->> 'compare' as compare, c.value ->> 'kind' as kind, c.value ->> 'value' as wanted,
                json_type(i.state, c.value ->> 'path') as type, json_extract(i.state, c.value ->> 'path') as has
            from json_each(:conditions) c
        ) c
        where not coalesce(
            case
                when c.kind = 'number' and c.type in ('integer', 'real') then
                    case c.compare
                        when '=' then has = cast(wanted as numeric) when '!=' then has <> cast(wanted as numeric)
                        when '<' then has < cast(wanted as numeric) when '<=' then has <= cast(wanted as numeric)
                        when '>' then has > cast(wanted as numeric) when '>=' then has >= cast(wanted as numeric)
                    end
                when c.kind = 'string' and c.type = 'text' then
                    case c.compare
                        when '=' then has = wanted when '!=' then has <> wanted when '<' then has < wanted
                        when '<=' then has <= wanted when '>' then has > wanted when '>=' then has >= wanted
                    end
                when c.kind = 'boolean' and c.type in ('true', 'false') then
                    case c.compare
                        when '=' then c.type = wanted when '!=' then c.type <> wanted when '<' then c.type < wanted
                        when '<=' then c.type <= wanted when '>' then c.type > wanted when '>=' then c.type >= wanted
                    end
            end, 0)
    ))
order by case when :oldest then i.id end, i.id desc limit :limit
