-- One interaction of a namespace, by its id or by its correlation id (interactions_correlation).
select * from dormouse.interactions
where namespace = $1 and id = coalesce($2, (select f.id from dormouse.by_correlation($1, $3) f))
