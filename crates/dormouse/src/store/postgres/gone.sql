-- Functions whose arguments or answers were others before: the new ones would stand beside them, or be refused.
drop function if exists dormouse.lane_slot(text, text);
drop function if exists dormouse.lock(bigint[], bigint[], boolean, integer[]);
drop function if exists dormouse.insert(json, boolean);
drop function if exists dormouse.deliver(json, boolean);
drop function if exists dormouse.complete(json);
drop function if exists dormouse.sent(json);
drop function if exists dormouse.outbox(text, text[], integer, bigint);
drop function if exists dormouse.let_go(bigint[], text, timestamptz);
drop function if exists dormouse.cancel_units(bigint[], timestamptz);
drop function if exists dormouse.let_go_unparked(bigint[], timestamptz);
drop function if exists dormouse.commit_done(bigint, bigint[], bigint[], text[], bigint[], bigint[], text[]);
drop function if exists dormouse.commit_done(bigint, bigint[], bigint[], text[], bigint[], bigint[], text[], integer[]);
drop function if exists dormouse.commit_done(bigint, bigint[], bigint[], text[], bigint[], bigint[], text[], integer[], bigint[]);
drop function if exists dormouse.claim(bigint, text, text[], text[], integer[], integer);
drop function if exists dormouse.claim(
    bigint, text, text[], text[], integer[], integer, integer, integer[], text[], integer[]
);
drop function if exists dormouse.start(
    text, json, text, text, integer, text, integer, text, timestamptz, text, text[], boolean
);
drop function if exists dormouse.start(
    text, json, text, text, integer, text, integer, text, timestamptz, text, text[], boolean, text
);
drop function if exists dormouse.signal(text, text, json, text, text);
drop function if exists dormouse.signal(bigint, text, json, text, text);
drop function if exists dormouse.signal_one(text, bigint, text, text, json, text);
drop function if exists dormouse.due(integer);
drop function if exists dormouse.post(bigint[], text[], text[], integer, bigint, integer);
drop function if exists dormouse.post_part(text, dormouse.mail[], integer, bigint, integer);
drop function if exists dormouse.post_signals(dormouse.mail[], integer, bigint, integer);
drop function if exists dormouse.sleep_data(timestamptz, json);
drop function if exists dormouse.opened_data(bigint, json, integer, timestamptz, json);
drop function if exists dormouse.unread(bigint, bigint[]);
drop function if exists dormouse.spawn_data(integer, integer, integer, integer, integer, timestamptz, json);
drop function if exists dormouse.lane_places(text[], text[]);
drop function if exists dormouse.settle_lanes(text[], text[]);
drop function if exists dormouse.change_lanes(dormouse.decided[], boolean[]);
drop function if exists dormouse.settle_some(text, text, text, integer);
drop function if exists dormouse.set_limit(text, text, integer);
