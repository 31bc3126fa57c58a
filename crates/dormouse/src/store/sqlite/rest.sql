-- The children that the barrier of an instance is to let go of: those of its round that live and count, by instances_parent.
select c.id from instances p
join barriers b on b.instance = p.id and b.round = p.round and b.cancels_rest
join instances c on c.parent = p.id and c.parent_round = p.round and c.parent is not null
where p.id = ?1 and p.status = 'awaiting_children' and c.ended_at is null and c.joined = 0
order by c.id limit ?2
