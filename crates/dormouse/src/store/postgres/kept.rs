//! Signals that are kept for instances to come, by their key.

use jiff::Timestamp;
use sqlx::postgres::PgRow;

use super::db::Db;
use super::deliver::{answers as delivered, deliveries};
use super::fault::lock_timed_out;
use super::gather::{Gather, Wait};
use super::insert::Answers;
use super::query::portion;
use super::types::Columns;
use crate::store::{Bounds, Delivery, KeptCount, KeptFilter, Portion, Written};
use crate::{Delivered, KeptId, KeptMax, KeptSignal, Result};

const SQL: &str =
    "select v.results, v.ids, v.wokes, v.until_us, (v.effects).* from dormouse.keep($1::json, $2) v";
/// Namespaces that are counted at most.
const COUNTS_MAX: i64 = 1_000;

/// Delivers signals, and keeps those that are to be kept. Most signals find their instance, also those that would be
/// kept: a single one is sent with others first. To keep it, its key must be locked, so it is then sent alone.
pub(super) async fn deliver(
    db: &Db,
    gather: &Gather<Delivery, Delivered>,
    batch: Vec<Delivery>,
) -> Result<Written<Vec<Delivered>>> {
    if batch.iter().all(|delivery| delivery.signal.keep_for.is_none()) {
        return gather.call(batch).await;
    }
    if batch.len() == 1 {
        let written = gather.call(batch.clone()).await?;
        if written.value != [Delivered::NoTarget] {
            return Ok(written);
        }
    }
    let sent = deliveries(&batch)?;
    let attempt = || db.raw_one(|| sqlx::query(SQL).bind(&sent).bind(Wait::Alone.ms()));
    let row = match attempt().await {
        Err(error) if lock_timed_out(&error) => db.again(attempt).await?,
        other => other?,
    };
    Ok(Written { value: answers(&row)?, effects: row.effects()? })
}

/// What became of each signal.
pub(super) fn answers(row: &PgRow) -> Result<Vec<Delivered>> {
    let Answers { results, ids, wokes } = delivered(row)?;
    let untils: Vec<Option<i64>> = row.value("until_us")?;
    let mut answers = Vec::with_capacity(results.len());
    for (((result, id), woke), until) in results.into_iter().zip(ids).zip(wokes).zip(untils) {
        let answer = match (id, until) {
            (Some(id), Some(until)) => {
                let until = Timestamp::from_microsecond(until).unwrap_or(Timestamp::MAX);
                Some(Delivered::Kept { id: KeptId(id), until })
            }
            _ => Answers { results: vec![result], ids: vec![id], wokes: vec![woke] }
                .delivered()
                .pop()
                .flatten(),
        };
        answers.push(answer.expect("whoever waits has an answer"));
    }
    Ok(answers)
}

/// How much may be kept, as the database takes it.
pub(super) fn kept_bounds(kept_max: KeptMax) -> (i64, i64) {
    let KeptMax { signals, bytes } = kept_max;
    (signals.try_into().unwrap_or(i64::MAX), bytes.try_into().unwrap_or(i64::MAX))
}

pub(super) async fn list(
    db: &Db,
    namespace: String,
    filter: KeptFilter,
    bounds: Bounds,
) -> Result<Portion<KeptSignal>> {
    let after = filter.after.map_or(0, |after| after.0);
    match &filter.key {
        None => {
            let sql = include_str!("kept_list.sql");
            portion(db, bounds, || sqlx::query(sql).bind(&namespace).bind(after), view).await
        }
        Some(key) => {
            let sql = include_str!("kept_list_by_key.sql");
            portion(db, bounds, || sqlx::query(sql).bind(&namespace).bind(after).bind(key), view).await
        }
    }
}

pub(super) async fn counts(db: &Db, namespace: Option<String>) -> Result<Vec<KeptCount>> {
    let sql = include_str!("kept_counts.sql");
    let rows = db.all(|| sqlx::query(sql).bind(&namespace).bind(COUNTS_MAX)).await?;
    let count = |row: &PgRow| {
        Ok(KeptCount {
            namespace: row.value("namespace")?,
            signals: row.number("signals")?,
            bytes: row.number("bytes")?,
        })
    };
    rows.iter().map(count).collect()
}

pub(super) async fn drop_one(db: &Db, namespace: String, id: KeptId) -> Result<bool> {
    let sql = "select dormouse.drop_kept($1, $2) as was_there";
    db.one(|| sqlx::query(sql).bind(&namespace).bind(id.0)).await?.value("was_there")
}

fn view(row: &PgRow) -> Result<KeptSignal> {
    Ok(KeptSignal {
        id: KeptId(row.value("id")?),
        key: row.value("key")?,
        name: row.value("name")?,
        payload: row.json("payload")?,
        dedup_key: row.value("dedup_key")?,
        at: row.moment("at")?,
        until: row.moment("until")?,
    })
}
