//! Collection: what has ended long ago, and events that nobody will ask for, in bounded batches.

use super::counts::Place;
use super::row::{names, status};
use super::tx::Tx;
use crate::Result;
use crate::store::{Collect, Collected};

pub(super) fn collect(tx: &mut Tx<'_>, collect: &Collect) -> Result<Collected> {
    let mut collected = Collected::default();
    let now = tx.now();
    let cutoff = |age: std::time::Duration| {
        now.checked_sub(jiff::SignedDuration::try_from(age).unwrap_or(jiff::SignedDuration::MAX)).ok()
    };
    if let Some(before) = collect.ended_for.and_then(cutoff) {
        collected.instances = ended(tx, before.as_microsecond(), collect)?;
    }
    if let Some(before) = collect.events_for.and_then(cutoff) {
        (collected.events, collected.events_next) = events(tx, before.as_microsecond(), collect)?;
    }
    Ok(collected)
}

fn ended(tx: &mut Tx<'_>, before_us: i64, collect: &Collect) -> Result<usize> {
    let mut sql = tx.sql(include_str!("collect.sql"))?;
    let mut rows = sql.query((before_us, collect.rows_max as i64, &collect.namespace))?;
    let mut ids: Vec<(i64, bool)> = Vec::new();
    let mut tagged: Vec<(i64, String, String)> = Vec::new();
    while let Some(row) = rows.next()? {
        ids.push((row.get(0)?, row.get(7)?));
        if let Some(tags) = row.get(8)? {
            tagged.push((row.get(0)?, row.get(1)?, tags));
        }
        let text = |index| Ok::<_, rusqlite::Error>(row.get_ref(index)?.as_str()?);
        let place = Place {
            namespace: text(1)?,
            queue: text(2)?,
            machine: text(3)?,
            version: row.get(4)?,
            step: text(5)?,
            status: status(text(6)?)?,
        };
        tx.counts.add(place, -1);
    }
    drop(rows);
    for (id, namespace, tags) in &tagged {
        for tag in names(Some(tags))? {
            tx.sql(include_str!("tag_remove.sql"))?.execute((namespace, tag, id))?;
        }
    }
    for (id, had_rounds) in &ids {
        if *had_rounds {
            tx.sql("delete from interactions where unit in (select id from units where instance = ?1)")?
                .execute([id])?;
            tx.sql("delete from units where instance = ?1")?.execute([id])?;
            tx.sql("delete from barriers where instance = ?1")?.execute([id])?;
        }
        tx.sql("delete from history where instance = ?1")?.execute([id])?;
        tx.sql("delete from progress where instance = ?1")?.execute([id])?;
        tx.sql("delete from signals where instance = ?1")?.execute([id])?;
        tx.sql("delete from instances where id = ?1")?.execute([id])?;
    }
    Ok(ids.len())
}

/// Looks at one stretch of events, and says where the next one starts.
fn events(tx: &Tx<'_>, before_us: i64, collect: &Collect) -> Result<(usize, Option<i64>)> {
    let looked_at: Vec<(i64, bool)> = tx
        .sql(include_str!("collect_events.sql"))?
        .query_map((before_us, collect.events_after, collect.rows_max as i64), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut gone = 0;
    for (id, _) in looked_at.iter().filter(|(_, superfluous)| *superfluous) {
        gone += tx.sql("delete from history where id = ?1")?.execute([id])?;
    }
    let next = looked_at.last().map(|(id, _)| *id).filter(|_| looked_at.len() == collect.rows_max);
    Ok((gone, next))
}
