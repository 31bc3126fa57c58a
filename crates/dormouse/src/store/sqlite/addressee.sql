-- Whose instance it is, and what it awaits: enough to check a signal for it.
select machine, version, awaits from instances where id = ?1 and namespace = ?2
