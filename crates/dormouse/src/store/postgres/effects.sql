-- Two verbs' effects as one.
create or replace function dormouse.merge(a dormouse.effects, b dormouse.effects) returns dormouse.effects
language plpgsql immutable as $$
begin
    return row(
        a.queues || b.queues, least(a.wake_at, b.wake_at), a.ended || b.ended, a.cancel || b.cancel
    )::dormouse.effects;
end
$$;
