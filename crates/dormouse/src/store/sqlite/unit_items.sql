-- A unit's items in order, by interactions_item.
select * from interactions where unit = ?1 and item >= ?2 order by item limit ?3
