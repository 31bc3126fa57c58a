insert into shares (share, namespace, weight) values (?1, ?2, ?3)
on conflict (share) do update set weight = excluded.weight
