select * from dormouse.interactions where id = $1
