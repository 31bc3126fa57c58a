-- Why an instance was cancelled, and the ancestor whose cancel took it along; until it is retried.
alter table instances add column cancel_reason text;
alter table instances add column cancelled_with integer;
