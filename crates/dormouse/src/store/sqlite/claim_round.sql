-- How many children a round has, up to ?3, and how many bytes their parent reads of them, by instances_parent. Lengths are
-- in the rows' heads: no document is read.
select count(*), coalesce(sum(bytes), 0) from (
    select coalesce(octet_length(output), 0) + case when status <> 'done' then octet_length(state) else 0 end as bytes
    from instances where parent = ?1 and parent_round = ?2 limit ?3
)
