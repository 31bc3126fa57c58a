-- These are `stable`, as what they are made of is: else they could not be folded into the statements that use them.

-- Time is the database's. Every statement of ours asks here, so no worker's clock decides anything.
create or replace function dormouse.now() returns timestamptz
language sql stable parallel safe as 'select statement_timestamp()';

-- A moment in microseconds since 1970, or counted from now, or none; held at the end of time.
create or replace function dormouse.moment(p_at_us bigint, p_in_us bigint, p_now timestamptz)
returns timestamptz language sql stable parallel safe as $$
    select case
        when p_at_us is not null then
            least(timestamptz '1970-01-01 00:00:00+00' + p_at_us * interval '1 microsecond', '9999-12-30 22:00:00+00')
        when p_in_us is not null then
            least(p_now + p_in_us * interval '1 microsecond', '9999-12-30 22:00:00+00')
    end
$$;

-- A moment as events tell it.
create or replace function dormouse.told(p_at timestamptz) returns text
language sql stable parallel safe as $$
    select rtrim(rtrim(to_char(p_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '0'), '.') || 'Z'
$$;
