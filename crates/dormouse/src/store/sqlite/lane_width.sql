-- The width that limits give a lane: its own, else its family's, else null.
select coalesce(
    (select width from limits where namespace = ?1 and name = ?2),
    (select width from limits where namespace = ?1 and name = ?3)
)
