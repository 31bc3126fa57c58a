-- Mail that is due, by mail_due. Only a signal that is to be delivered comes with its document, to be checked.
select id, namespace, tries, address, case when kind = 'signal' and undelivered is null then name end as name,
    dedup_key, case when kind = 'signal' and undelivered is null then body end as body
from mail where deliver_at <= ?1 order by deliver_at, id limit ?2
