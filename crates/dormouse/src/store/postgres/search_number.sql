-- The rows with such a number in an indexed field, by fields_number. NaN comes after any number.
select instance as id from dormouse.fields
where namespace = $2 and machine = $3 and field = $4 and number is not null
    and number >= coalesce($5::text::numeric, -1e1000) and number <= coalesce($6::text::numeric, 'NaN')
limit $1
