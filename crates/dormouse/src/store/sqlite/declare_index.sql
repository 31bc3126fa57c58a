-- A field that a machine declares as indexed. Instances that are there already may be missing in its index; a machine
-- that was never declared and has none started anew.
insert into indexes (machine, field, path, since)
select ?1, ?2, ?3, case
    when exists (select 1 from machines where name = ?1) or exists (select 1 from counts where machine = ?1)
    then coalesce((select max(id) from instances), 0) else 0
end
where true on conflict do nothing
