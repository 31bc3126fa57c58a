-- The rows with such a number in an indexed field, by fields_number.
select instance from fields
where namespace = ?1 and machine = ?2 and field = ?3 and number is not null
    and number >= coalesce(cast(?4 as numeric), -9e999) and number <= coalesce(cast(?5 as numeric), 9e999)
limit ?6
