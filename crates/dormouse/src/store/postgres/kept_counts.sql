-- How much is kept in each namespace, or in one.
select namespace, sum(signals)::bigint as signals, sum(bytes)::bigint as bytes from dormouse.kept_counts
where $1::text is null or namespace = $1 group by namespace having sum(signals) > 0 order by namespace limit $2
