//! A cancel at a step whose machine undoes what it did: the instance is asked to, by a signal, and ends by itself. Who asks
//! a second time ends it at once.

use rusqlite::{OptionalExtension, params};

use super::deliver::wake_by_signal;
use super::operate::live_children;
use super::row::Row;
use super::tx::Tx;
use super::units;
use crate::signal::CANCEL;
use crate::{Json, NewSignal, Result, SignalId, Status, Wake};

/// Whether a cancel asks this instance to undo what it did.
pub(super) fn undoes(tx: &Tx<'_>, row: &Row) -> Result<bool> {
    let mut sql = tx.sql(include_str!("cancel_undoes.sql"))?;
    Ok(sql.exists(params![row.machine, row.version, row.step, row.id.0])?)
}

/// Stores the request, with its reason, and wakes the instance. One that is parked on children is woken by their ends.
pub(super) fn ask_to_undo(tx: &mut Tx<'_>, row: &mut Row) -> Result<()> {
    let reason = Json::encode("reason", &row.cancel_reason)?;
    let signal = NewSignal::new(CANCEL, reason).dedup(CANCEL);
    let values = params![row.id.0, signal.name, signal.dedup_key, tx.now_us(), signal.payload.as_str()];
    tx.sql(include_str!("deliver.sql"))?.execute(values)?;
    let id = SignalId(tx.conn().last_insert_rowid());
    row.take_in(&signal.payload);
    match row.status {
        Status::AwaitingCompletion => {
            units::cancel_unit(tx, row)?;
            row.wake(Wake::Unit, tx.now_us());
        }
        Status::AwaitingSignal | Status::Scheduled => wake_by_signal(tx, row, id, &signal)?,
        Status::AwaitingChildren if live_children(tx, row.id)?.is_empty() => {
            wake_by_signal(tx, row, id, &signal)?;
        }
        // It sees the request when its children have ended, when it is claimed, or at its next step.
        _ => {
            tx.note_inbox(row)?;
            if row.status == Status::Executing {
                tx.effects.cancel.push(row.id);
            }
            return Ok(());
        }
    }
    tx.save(row)
}

/// Forgets that an instance was asked: it is to run again.
pub(super) fn forget_request(tx: &Tx<'_>, row: &mut Row) -> Result<()> {
    let mut sql =
        tx.sql("delete from signals where instance = ?1 and dedup_key = ?2 returning octet_length(payload)")?;
    if let Some(bytes) = sql.query_row((row.id.0, CANCEL), |gone| gone.get(0)).optional()? {
        row.let_out(1, bytes);
    }
    Ok(())
}
