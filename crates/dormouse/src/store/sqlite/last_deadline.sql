-- Until when an instance last waited for signals, by history_seq.
select data ->> 'until' from history where instance = ?1 and kind = 'signal.waiting' order by seq desc limit 1
