-- The transports that a worker has; null if it registered before this was noted.
alter table dormouse.workers add column transports text[];
