//! Delivering signals.

use std::sync::Arc;

use serde::Serialize;
use sqlx::postgres::PgRow;

use super::db::Db;
use super::fault::unreadable;
use super::gather::{Wait, Write};
use super::insert::Answers;
use super::kept::kept_bounds;
use super::types::{Columns, batch};
use crate::clock::micros;
use crate::store::{Delivery, Written};
use crate::{Delivered, InboxMax, Result, Target};

const SQL: &str = "select v.results, v.ids, v.wokes, (v.effects).* from dormouse.deliver($1::json, $2) v";
/// Those that need not wait.
const FREE: &str =
    "select v.results, v.ids, v.wokes, (v.effects).* from dormouse.deliver_what_can_be($1::json, $2) v";

/// Delivers what calls have gathered.
pub(super) fn gathered(db: &Db) -> Write<Delivery, Delivered> {
    let db = db.clone();
    Arc::new(move |calls, wait| {
        let db = db.clone();
        Box::pin(async move {
            let sent = called(&calls).map_err(unreadable)?;
            let sql = if wait == Wait::ForNobody { FREE } else { SQL };
            let row = db.raw_one(|| sqlx::query(sql).bind(&sent).bind(wait.ms())).await?;
            let answers = answers(&row).map_err(unreadable)?;
            Ok(Written { value: answers.delivered(), effects: row.effects().map_err(unreadable)? })
        })
    })
}

/// Calls as the database takes them.
fn called(calls: &[Vec<Delivery>]) -> Result<String> {
    let items = calls.iter().enumerate().flat_map(|(call, items)| items.iter().map(move |item| (call, item)));
    batch(&items.enumerate().map(Sent::new).collect::<Vec<_>>())
}

/// Deliveries of one call as the database takes them.
pub(super) fn deliveries(deliveries: &[Delivery]) -> Result<String> {
    batch(
        &deliveries
            .iter()
            .enumerate()
            .map(|(index, delivery)| Sent::new((index, (0, delivery))))
            .collect::<Vec<_>>(),
    )
}

/// What became of each.
pub(super) fn answers(row: &PgRow) -> Result<Answers> {
    Ok(Answers { results: row.value("results")?, ids: row.value("ids")?, wokes: row.value("wokes")? })
}

/// A signal and whom it is for, as the database takes it: the type `dormouse.delivery`.
#[derive(Serialize)]
struct Sent<'a> {
    ord: usize,
    call: usize,
    namespace: &'a str,
    id: Option<i64>,
    key: Option<&'a str>,
    name: &'a str,
    payload: &'a str,
    dedup_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
    inbox_max: i32,
    inbox_bytes_max: i64,
    keep_us: Option<i64>,
    kept_max: i64,
    kept_bytes_max: i64,
}

impl<'a> Sent<'a> {
    fn new((index, (call, delivery)): (usize, (usize, &'a Delivery))) -> Self {
        let Delivery { namespace, target, signal, inbox_max, kept_max } = delivery;
        let (kept_max, kept_bytes_max) = kept_bounds(*kept_max);
        let (inbox_max, inbox_bytes_max) = bounds(*inbox_max);
        let (id, key) = address(target);
        Self {
            ord: index + 1,
            call,
            namespace,
            id,
            key,
            name: &signal.name,
            payload: signal.payload.as_str(),
            dedup_key: signal.dedup_key.as_deref(),
            trace: signal.trace.as_deref(),
            inbox_max,
            inbox_bytes_max,
            keep_us: signal.keep_for.map(micros),
            kept_max,
            kept_bytes_max,
        }
    }
}

/// How much an inbox may hold, as the database takes it.
pub(super) fn bounds(inbox_max: InboxMax) -> (i32, i64) {
    let InboxMax { signals, bytes } = inbox_max;
    (signals.try_into().unwrap_or(i32::MAX), bytes.try_into().unwrap_or(i64::MAX))
}

/// A target as the database takes it: an id or a key; neither, for a key that nobody can have because the database
/// has no such text.
pub(super) fn address(target: &Target) -> (Option<i64>, Option<&str>) {
    match target {
        Target::Id(id) => (Some(id.0), None),
        Target::Key(key) => (None, Some(key.as_str()).filter(|key| !key.contains('\0'))),
    }
}
