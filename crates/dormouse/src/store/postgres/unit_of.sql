-- The unit that an instance is parked on, or was until it progressed, by units_round.
select u.* from dormouse.units u where u.instance = $1
    and u.round = (select i.round from dormouse.instances i where i.id = $1 and i.barrier is not null)
