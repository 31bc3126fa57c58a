-- expands: older engines send without limits, and everything that they use stays.
-- Transports: what limits their sends, and how much of that is used. One row for each name, over all namespaces.
create table dormouse.transports (
    name              text collate "C" primary key,
    declared          jsonb,                       -- what code declares: rate, in_flight, breaker; null: no engine had it
    changed           jsonb   not null default '{}', -- what an operator set in its place
    changed_at        timestamptz,
    -- What holds: the two above, merged.
    rate_count        integer,
    rate_period_us    bigint,
    rate_burst        integer,
    in_flight         integer,
    breaker_failures  integer,
    breaker_open_us   bigint,
    breaker_cap_us    bigint,
    -- The bucket: a send adds rate_period_us to it, each microsecond takes rate_count off.
    spent             bigint  not null default 0,
    spent_at          timestamptz,
    -- The breaker: closed without open_until. The epoch counts its changes.
    failures          integer not null default 0,
    opens             integer not null default 0,
    epoch             bigint  not null default 0,
    opened_at         timestamptz,
    open_until        timestamptz,
    probe_until       timestamptz,
    error             text,
    turn              text collate "C" not null default '' -- the namespace that was served last
) with (fillfactor = 50);

-- What is in flight: being sent, or sent and not answered. First what a sender did not report in time.
create index interactions_flying on dormouse.interactions (transport, send_at, id)
    where status = 'dispatched' or (status = 'pending' and sends > 0 and error is null);
