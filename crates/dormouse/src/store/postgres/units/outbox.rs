//! The outbox: requests to send, taken under a lease, and the results of sends.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;

use super::super::db::Db;
use super::super::fault::lock_timed_out;
use super::super::types::{Columns, batch};
use super::query::interaction;
use crate::Result;
use crate::clock::micros;
use crate::limits::storable;
use crate::store::{Effects, Gate, Namespaces, Outbox, SendOutcome, SendReport, Written};

pub(super) async fn take(
    db: &Db,
    transport: &str,
    namespaces: &Namespaces,
    rows_max: usize,
    lease: Duration,
) -> Result<Outbox> {
    let namespaces = match namespaces {
        Namespaces::All => None,
        Namespaces::Only(names) => Some(names.as_slice()),
    };
    let (rows_max, lease_us) = (i32::try_from(rows_max).unwrap_or(i32::MAX), micros(lease));
    let sql = "select v.ids, v.next, v.at, v.held, v.epoch, v.judges, v.is_watched \
        from dormouse.outbox($1, $2, $3, $4) v";
    let row =
        db.one(|| sqlx::query(sql).bind(transport).bind(namespaces).bind(rows_max).bind(lease_us)).await?;
    let ids: Vec<i64> = row.value("ids")?;
    let held: Option<&str> = row.value("held")?;
    let gate = Gate {
        held: held.map(|word| word.parse().unwrap_or_else(|_| panic!("{word:?} holds nothing up"))),
        epoch: row.value::<Option<i64>>("epoch")?.unwrap_or_default(),
        judges: row.value::<Option<bool>>("judges")?.unwrap_or_default(),
        is_watched: row.value::<Option<bool>>("is_watched")?.unwrap_or_default(),
    };
    let (next, now) = (row.moment_or_none("next")?, Some(row.moment("at")?));
    let mut outbox = Outbox { taken: Vec::new(), next, now, gate };
    if !ids.is_empty() {
        let rows = db.all(|| sqlx::query(include_str!("../outbox_taken.sql")).bind(&ids)).await?;
        outbox.taken = rows.iter().map(interaction).collect::<Result<_>>()?;
    }
    Ok(outbox)
}

/// Gives back those that another transaction keeps waiting.
pub(super) async fn sent(db: &Db, reports: &[SendReport]) -> Result<Written<Vec<SendReport>>> {
    if reports.is_empty() {
        return Ok(Written::default());
    }
    let told = batch(&reports.iter().enumerate().map(Told::new).collect::<Vec<_>>())?;
    let sql = "select v.busy, (v.effects).* from dormouse.sent($1::json) v";
    let row = match db.raw_one(|| sqlx::query(sql).bind(&told)).await {
        // One of them waits for a key that another transaction inserts.
        Err(error) if lock_timed_out(&error) && reports.len() > 1 => {
            let mut all: Written<Vec<_>> = Written::default();
            for half in reports.chunks(reports.len().div_ceil(2)) {
                let Written { value, effects } = Box::pin(sent(db, half)).await?;
                all.value.extend(value);
                all.effects.merge(effects);
            }
            return Ok(all);
        }
        Err(error) if lock_timed_out(&error) => {
            return Ok(Written { value: reports.to_vec(), effects: Effects::default() });
        }
        other => other?,
    };
    let busy: Option<Vec<i32>> = row.value("busy")?;
    let busy = busy.unwrap_or_default().into_iter().map(|place| reports[place as usize - 1].clone());
    Ok(Written { value: busy.collect(), effects: row.effects()? })
}

/// The result of a send, as the database takes it: the type `dormouse.send`.
#[derive(Serialize)]
struct Told<'a> {
    ord: usize,
    id: i64,
    sends: u32,
    outcome: &'static str,
    in_us: Option<i64>,
    error: Option<Cow<'a, str>>,
}

impl<'a> Told<'a> {
    fn new((index, report): (usize, &'a SendReport)) -> Self {
        let (outcome, in_us, error) = match &report.outcome {
            SendOutcome::Sent => ("sent", None, None),
            SendOutcome::Retry { after, error } => ("retry", Some(micros(*after)), Some(storable(error))),
            SendOutcome::Rejected(reason) => ("rejected", None, Some(storable(reason))),
        };
        Self { ord: index + 1, id: report.id.0, sends: report.sends, outcome, in_us, error }
    }
}
