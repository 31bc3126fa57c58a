-- What no step has read of an inbox, by signals_inbox: up to 16 names with their counts, the most first; and how many there are in all.
with unread as (
    select name, count(*) as count from signals
    where instance = ?1 and consumed = 0 and name <> ?3 and id not in (select value from json_each(?2))
    group by name
), first as (
    select name, count from unread order by count desc, name limit 16
)
select (select json_group_array(json_object('name', name, 'count', count)) from first), sum(count) from unread
