//! Signals that are kept for instances to come, by their key. One writer: a start and a signal never meet half-way.

use rusqlite::{Connection, OptionalExtension, Row as SqlRow, params};

use super::deliver::{Sent, deliver_to};
use super::query::{one_more, portion};
use super::tx::{Tx, timestamp};
use crate::clock::later;
use crate::store::{Bounds, Delivery, KeptCount, KeptFilter, Portion};
use crate::{Delivered, InboxMax, InstanceId, Json, KeptId, KeptMax, KeptSignal, NewSignal, Result, Target};

/// Namespaces that are counted at most.
const COUNTS_MAX: i64 = 1_000;
/// What is kept fits into the inbox of its instance: how much may be kept has a bound of its own.
const NO_BOUND: InboxMax = InboxMax { signals: usize::MAX, bytes: usize::MAX };

/// Keeps a signal that found no live instance, if it says for how long. A key that an ended instance holds cannot have
/// another instance.
pub(super) fn keep(tx: &mut Tx<'_>, delivery: &Delivery) -> Result<Delivered> {
    let Delivery { namespace, target, signal, kept_max, .. } = delivery;
    let (Some(keep_for), Target::Key(key)) = (signal.keep_for, target) else {
        return Ok(Delivered::NoTarget);
    };
    if tx.key_holder(namespace, key)?.is_some() {
        return Ok(Delivered::NoTarget);
    }
    let NewSignal { name, payload, dedup_key, trace, .. } = signal;
    if let Some(dedup_key) = dedup_key {
        let sql = "select id, until from kept where namespace = ?1 and key = ?2 and dedup_key = ?3";
        let same = tx.sql(sql)?.query_row((namespace, key, dedup_key), |row| Ok((row.get(0)?, row.get(1)?)));
        match same.optional()? {
            Some((_, until)) if tx.now_us() < until => return Ok(Delivered::Duplicate),
            // It has expired, and the clock has not come by yet.
            Some((id, _)) => drop(remove(tx, KeptId(id))?),
            None => {}
        }
    }
    let payload = payload.as_str();
    if !has_room(tx, namespace, payload.len(), *kept_max)? {
        return Ok(Delivered::KeptFull);
    }
    let until = later(tx.now(), keep_for);
    let (now, until_us) = (tx.now_us(), until.as_microsecond());
    tx.sql(include_str!("keep.sql"))?
        .execute(params![namespace, key, name, dedup_key, now, until_us, payload, trace])?;
    let id = KeptId(tx.conn().last_insert_rowid());
    count(tx, namespace, 1, payload.len() as i64)?;
    tx.effects.arm(until);
    Ok(Delivered::Kept { id, until: timestamp(until_us) })
}

fn has_room(tx: &Tx<'_>, namespace: &str, payload_bytes: usize, kept_max: KeptMax) -> Result<bool> {
    let sql = "select signals, bytes from kept_counts where namespace = ?1";
    let kept = tx.sql(sql)?.query_row([namespace], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
    let (signals, bytes) = kept.optional()?.unwrap_or_default();
    Ok(signals < kept_max.signals as i64 && bytes as u64 + payload_bytes as u64 <= kept_max.bytes as u64)
}

/// Adds to what is kept in a namespace.
fn count(tx: &Tx<'_>, namespace: &str, signals: i64, bytes: i64) -> Result<()> {
    tx.sql(include_str!("kept_count.sql"))?.execute((namespace, signals, bytes))?;
    Ok(())
}

/// What an instance got that was kept for it.
#[derive(Clone, Copy, Default)]
pub(super) struct Received {
    pub(super) signals: usize,
    pub(super) bytes: usize,
}

/// Puts what is kept for a key into the inbox of the instance that has just taken it.
pub(super) fn receive_kept(tx: &mut Tx<'_>, namespace: &str, key: &str, id: InstanceId) -> Result<Received> {
    let sql = "select id from kept where namespace = ?1 and key = ?2 and until > ?3 order by id";
    let ids: Vec<i64> = tx
        .sql(sql)?
        .query_map((namespace, key, tx.now_us()), |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut signals = Vec::with_capacity(ids.len());
    for id in ids {
        let (kept, trace) = remove(tx, KeptId(id))?.expect("it has just been listed");
        let KeptSignal { name, payload, dedup_key, .. } = kept;
        signals.push(NewSignal { dedup_key, trace, ..NewSignal::new(name, payload) });
    }
    let sent = |signal| Sent { target: Some(id), namespace: None, signal, inbox_max: NO_BOUND };
    deliver_to(tx, signals.iter().map(sent))?;
    let bytes = signals.iter().map(|signal| signal.payload.as_str().len()).sum();
    Ok(Received { signals: signals.len(), bytes })
}

/// Removes what has expired. Returns how many those are, and when the next one expires.
pub(super) fn expire_kept(tx: &Tx<'_>, rows_max: usize) -> Result<(usize, Option<i64>)> {
    let ids: Vec<i64> = tx
        .sql("select id from kept where until <= ?1 order by until, id limit ?2")?
        .query_map((tx.now_us(), rows_max as i64), |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for id in &ids {
        remove(tx, KeptId(*id))?;
    }
    let next = tx.sql("select until from kept order by until limit 1")?.query_row([], |row| row.get(0));
    Ok((ids.len(), next.optional()?))
}

/// Removes a kept signal of a namespace.
pub(super) fn drop_one(tx: &Tx<'_>, namespace: &str, id: KeptId) -> Result<bool> {
    let is_there = "select 1 from kept where id = ?1 and namespace = ?2";
    Ok(tx.sql(is_there)?.exists((id.0, namespace))? && remove(tx, id)?.is_some())
}

/// Removes a kept signal, and returns it with its trace.
fn remove(tx: &Tx<'_>, id: KeptId) -> Result<Option<(KeptSignal, Option<String>)>> {
    let found = tx
        .sql("select id, namespace, key, name, dedup_key, at, until, payload, trace from kept where id = ?1")?
        .query_row([id.0], |row| Ok((row.get::<_, String>("namespace")?, view(row)?, row.get("trace")?)))
        .optional()?;
    let Some((namespace, kept, trace)) = found else { return Ok(None) };
    tx.sql("delete from kept where id = ?1")?.execute([id.0])?;
    count(tx, &namespace, -1, -(kept.payload.as_str().len() as i64))?;
    Ok(Some((kept, trace)))
}

pub(super) fn list(
    conn: &Connection,
    namespace: &str,
    filter: &KeptFilter,
    bounds: Bounds,
) -> Result<Portion<KeptSignal>> {
    let after = filter.after.map_or(0, |after| after.0);
    let read = |row: &SqlRow<'_>| {
        let kept = view(row)?;
        Ok((kept.payload.as_str().len(), kept))
    };
    match &filter.key {
        Some(key) => {
            let mut sql = conn.prepare_cached(include_str!("kept_by_key.sql"))?;
            portion(sql.query((namespace, after, one_more(bounds), key))?, bounds, read)
        }
        None => {
            let mut sql = conn.prepare_cached(include_str!("kept.sql"))?;
            portion(sql.query((namespace, after, one_more(bounds)))?, bounds, read)
        }
    }
}

pub(super) fn counts(conn: &Connection, namespace: Option<&str>) -> Result<Vec<KeptCount>> {
    let mut sql = conn.prepare_cached(include_str!("kept_counts.sql"))?;
    let rows = sql.query_map((namespace, COUNTS_MAX), |row| {
        Ok(KeptCount { namespace: row.get(0)?, signals: row.get(1)?, bytes: row.get(2)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn view(row: &SqlRow<'_>) -> rusqlite::Result<KeptSignal> {
    Ok(KeptSignal {
        id: KeptId(row.get("id")?),
        key: row.get("key")?,
        name: row.get("name")?,
        payload: Json::trusted(row.get::<_, Box<str>>("payload")?),
        dedup_key: row.get("dedup_key")?,
        at: timestamp(row.get("at")?),
        until: timestamp(row.get("until")?),
    })
}
