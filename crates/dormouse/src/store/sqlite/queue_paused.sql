select 1 from paused_queues where namespace = ?1 and queue = ?2
