-- Shares with a weight, by shares_namespace.
select share, namespace, weight from shares where ?1 is null or namespace = ?1 order by namespace, share limit ?2
