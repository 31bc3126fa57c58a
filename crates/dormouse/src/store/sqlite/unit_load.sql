-- The unit of one round, by units_round.
select * from units where instance = ?1 and round = ?2
