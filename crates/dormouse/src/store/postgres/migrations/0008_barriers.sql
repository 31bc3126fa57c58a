-- What is special about an instance's last barrier on children: it counts only those that are done, and bears so many
-- other ends (null: every end counts); those that it leaves behind are cancelled.
create table dormouse.barriers (
    instance     bigint  not null,
    round        integer not null,
    spare        integer check (spare >= 0),
    cancels_rest boolean not null,
    primary key (instance, round)
);
alter type dormouse.outcome
    add attribute counts_done boolean, add attribute fail_fast boolean, add attribute cancels_rest boolean;
-- Its place is taken by one that is told how children ended.
drop function if exists dormouse.join(bigint[], integer[], timestamptz);
