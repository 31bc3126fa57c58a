//! Delivering signals: store the row, then wake whoever is parked on its name.

use rusqlite::params;
use serde::Serialize;

use super::row::Row;
use super::tx::Tx;
use crate::store::Delivery;
use crate::{Delivered, EventKind, InstanceId, Json, NewSignal, Result, SignalId, Status, Wake};

pub(super) fn deliver(tx: &mut Tx<'_>, delivery: &Delivery) -> Result<Delivered> {
    match tx.find(&delivery.namespace, &delivery.target)? {
        Some(row) => deliver_into(tx, row, &delivery.signal),
        None => Ok(Delivered::NoTarget),
    }
}

pub(super) fn deliver_to(tx: &mut Tx<'_>, id: InstanceId, signal: &NewSignal) -> Result<Delivered> {
    match tx.load(id)? {
        Some(row) => deliver_into(tx, row, signal),
        None => Ok(Delivered::NoTarget),
    }
}

fn deliver_into(tx: &mut Tx<'_>, mut row: Row, signal: &NewSignal) -> Result<Delivered> {
    if row.status.is_terminal() {
        return Ok(Delivered::NoTarget);
    }
    let id = row.id;
    let (payload, dedup_key) = (signal.payload.as_str(), &signal.dedup_key);
    let stored = tx.sql(include_str!("deliver.sql"))?.execute(params![
        id.0,
        signal.name,
        dedup_key,
        tx.now_us(),
        payload
    ])?;
    if stored == 0 {
        return Ok(Delivered::Duplicate);
    }
    let stored = SignalId(tx.conn().last_insert_rowid());
    row.inbox += 1;
    let woke = row.status == Status::AwaitingSignal && row.awaited_names().contains(&signal.name);
    if woke {
        wake_by_signal(tx, &mut row, stored, signal)?;
        tx.save(&mut row)?;
    } else {
        tx.sql("update instances set inbox = ?2 where id = ?1")?.execute((id.0, row.inbox))?;
    }
    Ok(Delivered::Accepted { id: stored, woke })
}

/// Makes an instance runnable because of a signal, and records which.
pub(super) fn wake_by_signal(tx: &Tx<'_>, row: &mut Row, id: SignalId, signal: &NewSignal) -> Result<()> {
    row.wake(Wake::Signal, tx.now_us());
    let dedup_key = signal.dedup_key.as_deref();
    let data = SignalData { id, name: &signal.name, payload: &signal.payload, dedup_key };
    tx.record(row, EventKind::SignalReceived, Some(data.to_text()))
}

/// A signal in an event's data. Written straight to text: a detour over a tree would change its numbers.
#[derive(Serialize)]
pub(super) struct SignalData<'a> {
    pub(super) id: SignalId,
    pub(super) name: &'a str,
    pub(super) payload: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dedup_key: Option<&'a str>,
}

impl SignalData<'_> {
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("names and valid JSON can be written")
    }
}
