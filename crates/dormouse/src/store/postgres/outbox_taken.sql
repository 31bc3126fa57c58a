-- What was handed out, in that order, unless it was answered meanwhile.
select n.* from unnest($1::bigint[]) with ordinality taken (id, place) 
join dormouse.interactions n on n.id = any (array[taken.id])
where n.status in ('pending', 'dispatched') order by taken.place
