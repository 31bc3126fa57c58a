insert into audit (at, namespace, who, what, target, result) values (?1, ?2, ?3, ?4, ?5, ?6)
