-- What no step has read of an inbox, by signals_inbox: up to 16 names with their counts, the most first; null if nothing.
with unread as (
    select name, count(*) as count from signals
    where instance = ?1 and consumed = 0 and name <> ?3 and id not in (select value from json_each(?2))
    group by name
), first as (
    select name, count from unread order by count desc, name limit 16
)
select case when exists (select 1 from unread) then json_object(
    'unread', json((select json_group_array(json_object('name', name, 'count', count)) from first)),
    'unread_total', (select sum(count) from unread)
) end
