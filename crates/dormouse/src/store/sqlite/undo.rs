//! A cancel at a step whose machine undoes what it did: a signal asks the instance to undo and then to end by itself. A
//! second cancel ends it at once.

use rusqlite::{OptionalExtension, params};

use super::operate::{live_children, note_cancel};
use super::row::Row;
use super::tx::Tx;
use super::units;
use crate::rules::{self, Head};
use crate::signal::CANCEL;
use crate::{InboxSignal, Json, Result, SignalId, Status};

/// Whether a cancel asks this instance to undo what it did.
pub(super) fn undoes(tx: &Tx<'_>, head: &Head) -> Result<bool> {
    let mut sql = tx.sql(include_str!("cancel_undoes.sql"))?;
    Ok(sql.exists(params![head.machine, head.version, head.step, head.id.0])?)
}

/// Stores the request, with its reason, and wakes the instance if it waits for something that nobody needs any more.
pub(super) fn ask_to_undo(tx: &mut Tx<'_>, mut row: Row) -> Result<()> {
    let request = store_request(tx, row.head())?;
    let unit = units::parked_on(tx, row.head())?;
    let has_live_children =
        row.head().status == Status::AwaitingChildren && !live_children(tx, row.id())?.is_empty();
    rules::ask_to_undo(&mut row.change, &request, unit.as_ref(), has_live_children, tx.now());
    if !row.change.events.is_empty() {
        return tx.save(&mut row);
    }
    // It sees the request when its children have ended, when it is claimed, or at its next step.
    tx.note_inbox(row.head())?;
    note_cancel(tx, row.head())?;
    if row.head().status == Status::Executing {
        tx.effects.cancel.push(row.id());
    }
    Ok(())
}

fn store_request(tx: &Tx<'_>, head: &Head) -> Result<InboxSignal> {
    let payload = Json::encode("reason", &head.cancel_reason)?;
    let values = params![head.id.0, CANCEL, CANCEL, tx.now_us(), payload.as_str(), None::<String>];
    tx.sql(include_str!("deliver.sql"))?.execute(values)?;
    let (name, dedup_key) = (CANCEL.to_owned(), Some(CANCEL.to_owned()));
    let id = SignalId(tx.conn().last_insert_rowid());
    Ok(InboxSignal { id, name, payload, dedup_key, at: tx.now(), trace: None })
}

/// Forgets that an instance was asked: it is to run again.
pub(super) fn forget_request(tx: &Tx<'_>, head: &mut Head) -> Result<()> {
    let mut sql =
        tx.sql("delete from signals where instance = ?1 and dedup_key = ?2 returning octet_length(payload)")?;
    if let Some(bytes) = sql.query_row((head.id.0, CANCEL), |gone| gone.get(0)).optional()? {
        rules::leave(head, 1, bytes);
    }
    Ok(())
}
