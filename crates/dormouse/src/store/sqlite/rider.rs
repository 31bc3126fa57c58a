//! A step's own writes, run by the one writer inside the commit of the step's outcome.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rusqlite::{Connection, ErrorCode};

use super::commit::commit;
use super::tx::Tx;
use crate::store::{Commit, Receipt};
use crate::{BoxError, Error, Result, WorkerId};

/// One of a step's own writes. It may be run again, when the group it was in is rolled back for another's sake.
pub type InCommit = Box<dyn Fn(&Connection) -> Result<(), BoxError> + Send>;

/// A step's own writes, in order.
pub type OwnWrites = Vec<InCommit>;

/// Commits an outcome and what rides with it; a refused write undoes both, and the answer says why.
pub(super) fn commit_with(
    tx: &mut Tx<'_>,
    worker: WorkerId,
    outcome: &Commit,
    own: &OwnWrites,
) -> Result<Result<Receipt, BoxError>> {
    let (effects_before, counts_before) = (tx.effects.clone(), tx.counts.clone());
    tx.conn().execute_batch("savepoint own")?;
    let receipt = commit(tx, worker, outcome)?;
    let run = match receipt {
        Receipt::Held { .. } | Receipt::Released => {
            own.iter().try_for_each(|write| guarded(tx.conn(), write))
        }
        // Its outcome was not taken, so neither is what rides with it.
        _ => Ok(()),
    };
    if let Err(error) = &run
        && let Some(fault) = disk_fault(error)
    {
        return Err(fault);
    }
    assert!(!tx.conn().is_autocommit(), "a step's own write ended the transaction it was in");
    if let Err(error) = run {
        tx.conn().execute_batch("rollback to own; release own")?;
        (tx.effects, tx.counts) = (effects_before, counts_before);
        return Ok(Err(error));
    }
    tx.conn().execute_batch("release own")?;
    Ok(Ok(receipt))
}

/// A disk that is full or fails is no fault of the step, whoever was writing; the transaction may be gone with it.
fn disk_fault(error: &BoxError) -> Option<Error> {
    let fault = error.downcast_ref::<rusqlite::Error>()?;
    match fault.sqlite_error_code()? {
        ErrorCode::DiskFull => Some(Error::DiskFull(fault.to_string())),
        ErrorCode::SystemIoFailure => Some(Error::Storage(fault.to_string().into())),
        _ => None,
    }
}

/// A panic in user code is that step's failure, not the writer's.
fn guarded(conn: &Connection, write: &InCommit) -> Result<(), BoxError> {
    catch_unwind(AssertUnwindSafe(|| write(conn))).unwrap_or_else(|panic| {
        let reason = panic.downcast_ref::<&str>().map(ToString::to_string);
        let reason = reason.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(format!("it panicked: {reason}").into())
    })
}
