-- A version below zero makes what counts and lists instances fail.
update instances set version = 0 where version < 0;
