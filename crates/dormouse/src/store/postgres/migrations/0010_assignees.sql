-- Whom an interaction is asked of, and who answered it.
alter table dormouse.interactions add column for_assignee text, add column for_group text, add column answered_by text;
alter type dormouse.ask add attribute for_assignee text, add attribute for_group text;
alter type dormouse.completion add attribute answered_by text;
drop function if exists dormouse.resolve(bigint, text, boolean, text, text, timestamptz);
