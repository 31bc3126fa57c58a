-- What is special about an instance's last barrier on children: it counts only those that are done, and bears so many
-- other ends (null: every end counts); those that it leaves behind are cancelled.
create table barriers (
    instance     integer not null,
    round        integer not null,
    spare        integer check (spare >= 0),
    cancels_rest integer not null,
    primary key (instance, round)
) strict, without rowid;
