-- Events before one, newest first, each with the state after it, by history_seq.
select h.seq, h.kind, h.version, h.step, h.data, h.at, h.started_at, h.took_us, h.progress, coalesce(h.state, (
    select e.state from history e
    where e.instance = h.instance and e.seq < h.seq and e.state is not null
    order by e.seq desc limit 1
), 'null')
from history h where h.instance = ?1 and h.seq < ?2
order by h.seq desc limit ?3
