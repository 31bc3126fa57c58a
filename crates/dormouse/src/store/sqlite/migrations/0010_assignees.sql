-- Whom an interaction is asked of, and who answered it.
alter table interactions add column for_assignee text;
alter table interactions add column for_group text;
alter table interactions add column answered_by text;
