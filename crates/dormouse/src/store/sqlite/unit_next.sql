-- Gives the next item its place in flight, by interactions_item.
update interactions set opened_at = ?3, deadline = ?4, send_at = ?5 where unit = ?1 and item = ?2
