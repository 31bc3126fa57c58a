-- expands: older engines send without limits, and everything that they use stays.
-- Transports: what limits their sends, and how much of that is used. One row for each name, over all namespaces.
create table transports (
    name              text    primary key,
    declared          text,                        -- what code declares: rate, in_flight, breaker; null: no engine had it
    changed           text    not null default '{}', -- what an operator set in its place
    changed_at        integer,
    -- What holds: the two above, merged.
    rate_count        integer,
    rate_period_us    integer,
    rate_burst        integer,
    in_flight         integer,
    breaker_failures  integer,
    breaker_open_us   integer,
    breaker_cap_us    integer,
    -- The bucket: a send adds rate_period_us to it, each microsecond takes rate_count off.
    spent             integer not null default 0,
    spent_at          integer,
    -- The breaker: closed without open_until. The epoch counts its changes.
    failures          integer not null default 0,
    opens             integer not null default 0,
    epoch             integer not null default 0,
    opened_at         integer,
    open_until        integer,
    probe_until       integer,
    error             text,
    turn              text    not null default ''  -- the namespace that was served last
) strict;

-- What is in flight: being sent, or sent and not answered. First what a sender did not report in time.
create index interactions_flying on interactions (transport, send_at, id)
    where status = 'dispatched' or (status = 'pending' and sends > 0 and error is null);
