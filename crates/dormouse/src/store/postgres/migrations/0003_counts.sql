-- How many instances are where, as what each transaction moved: rows are only added, so that no two transactions wait
-- for each other's, and folded now and then (counts.sql). What executes is not in it: that is counted by
-- instances_claimed.
create table dormouse.counts (
    namespace text collate "C" not null,
    queue     text collate "C" not null,
    machine   text collate "C" not null,
    step      text        not null,
    status    text collate "C" not null,
    count     bigint      not null
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000
);
insert into dormouse.counts
select namespace, queue, machine, step, status, count(*) from dormouse.instances where status <> 'executing'
group by namespace, queue, machine, step, status;

-- What failed is looked for more than anything else, and is few among many.
create index instances_failed on dormouse.instances (id) where status = 'failed';

-- Where an event stands in the feed of changes (feed.sql). What is there already is told to nobody who watches.
alter table dormouse.history add column id bigint not null default 0;
alter table dormouse.history alter column id drop default;
create index history_feed on dormouse.history (id);
create sequence dormouse.event_ids minvalue 0 maxvalue 1048575 cycle owned by dormouse.history.id;

-- It has another argument now.
drop function if exists dormouse.collect_ended(bigint, integer);
