-- The rows with such a text in an indexed field, by fields_text. The highest characters come after any text.
select instance as id from dormouse.fields
where namespace = $2 and machine = $3 and field = $4 and text is not null
    and text >= coalesce($5::text, '') and text <= coalesce($6::text, repeat(U&'\+10FFFF', 4))
limit $1
