-- The unit that an instance is parked on, or was until it progressed, by units_round.
select u.* from dormouse.instances i join dormouse.units u on u.instance = i.id and u.round = i.round
where i.id = $1 and i.barrier is not null
