//! Delivering signals.

use std::sync::Arc;

use serde::Serialize;
use sqlx::postgres::PgRow;

use super::db::Db;
use super::fault::unreadable;
use super::gather::{Calls, Write};
use super::insert::Answers;
use super::types::{Columns, batch};
use crate::store::{Delivery, Written};
use crate::{Delivered, Result, Target};

const SQL: &str = "select v.results, v.ids, v.wokes, (v.effects).* from dormouse.deliver($1::json, $2) v";

/// Delivers what calls have gathered.
pub(super) fn gathered(db: &Db) -> Write<Delivery, Delivered> {
    let db = db.clone();
    Arc::new(move |batch, calls| {
        let db = db.clone();
        Box::pin(async move {
            let sent = deliveries(&batch).map_err(unreadable)?;
            let row = db.raw_one(|| sqlx::query(SQL).bind(&sent).bind(calls == Calls::Many)).await?;
            delivered(&row).map_err(unreadable)
        })
    })
}

/// A batch as the database takes it.
pub(super) fn deliveries(deliveries: &[Delivery]) -> Result<String> {
    batch(&deliveries.iter().enumerate().map(Sent::new).collect::<Vec<_>>())
}

/// What became of each.
pub(super) fn delivered(row: &PgRow) -> Result<Written<Vec<Delivered>>> {
    let answers =
        Answers { results: row.value("results")?, ids: row.value("ids")?, wokes: row.value("wokes")? };
    Ok(Written { value: answers.delivered(), effects: row.effects()? })
}

/// A signal and whom it is for, as the database takes it: the type `dormouse.delivery`.
#[derive(Serialize)]
struct Sent<'a> {
    ord: usize,
    namespace: &'a str,
    id: Option<i64>,
    key: Option<&'a str>,
    name: &'a str,
    payload: &'a str,
    dedup_key: Option<&'a str>,
}

impl<'a> Sent<'a> {
    fn new((index, delivery): (usize, &'a Delivery)) -> Self {
        let Delivery { namespace, target, signal } = delivery;
        let (id, key) = address(target);
        Self {
            ord: index + 1,
            namespace,
            id,
            key,
            name: &signal.name,
            payload: signal.payload.as_str(),
            dedup_key: signal.dedup_key.as_deref(),
        }
    }
}

/// A target as the database takes it: an id or a key; neither, for a key that nobody can have because the database
/// has no such text.
pub(super) fn address(target: &Target) -> (Option<i64>, Option<&str>) {
    match target {
        Target::Id(id) => (Some(id.0), None),
        Target::Key(key) => (None, Some(key.as_str()).filter(|key| !key.contains('\0'))),
    }
}
