-- Answers past their time, by answers_at.
delete from answers where (namespace, key) in (select namespace, key from answers where at < ?1 order by at limit ?2)
