-- Takes away what cannot be read in a row that was just taken. It was woken: what it awaited tells by what.
update instances set
    seq = case when typeof(seq) = 'integer' and seq >= 0 then seq else 0 end,
    attempt = case when typeof(attempt) = 'integer' and attempt >= 0 then attempt else 0 end,
    wake = case
        when wake in ('signal', 'timeout', 'children', 'unit', 'clock') then wake when awaits is not null then 'signal'
    end,
    awaits = case when json_valid(awaits) and json_type(awaits) = 'array' then awaits end,
    inbox_bytes = max(inbox_bytes, 0), barrier = case when barrier >= 0 then barrier end, round = max(round, 0)
where id = ?1
