-- The rows with such a text in an indexed field, by fields_text. A blob comes after any text.
select instance from fields
where namespace = ?1 and machine = ?2 and field = ?3 and text is not null
    and text >= coalesce(?4, '') and text <= coalesce(?5, x'00')
limit ?6
