//! A step's own writes, run by the one writer inside the commit of the step's outcome.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rusqlite::{Connection, ErrorCode};

use super::commit::commit;
use super::tx::Tx;
use crate::store::{Commit, Receipt, Rider};
use crate::{BoxError, Context, Error, Result, WorkerId};

/// One of a step's own writes. It may be run again, when the group it was in is rolled back for another's sake.
pub type InCommit = Box<dyn Fn(&Connection) -> Result<(), BoxError> + Send>;

/// A step's own writes, in order.
pub type OwnWrites = Vec<InCommit>;

impl Context {
    /// Runs a closure inside the commit of this step's outcome, to write the step's own tables: both are committed, or
    /// neither. An error from it is a failure of the step. It may be run more than once, but is committed once; every
    /// other write waits while it runs, so it should only write.
    ///
    /// On SQLite. On PostgreSQL, use [`Context::transaction`].
    pub fn in_commit<F>(&self, write: F) -> Result<()>
    where
        F: Fn(&Connection) -> Result<(), BoxError> + Send + 'static,
    {
        let refuse = || Error::WrongStore {
            asked_for: "writer that runs closures inside its commits",
            instead: "on PostgreSQL, write with `cx.transaction`",
        };
        let mut rider = self.own.closures()?.ok_or_else(refuse)?;
        let own = rider.get_or_insert_with(|| Rider::new(OwnWrites::new()));
        own.get_mut::<OwnWrites>().ok_or_else(refuse)?.push(Box::new(write));
        Ok(())
    }
}

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

/// A full or failing disk is not the step's fault, even if the step was writing; the transaction may be gone with it.
fn disk_fault(error: &BoxError) -> Option<Error> {
    let fault = error.downcast_ref::<rusqlite::Error>()?;
    match fault.sqlite_error_code()? {
        ErrorCode::DiskFull => Some(Error::DiskFull(fault.to_string().into())),
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
