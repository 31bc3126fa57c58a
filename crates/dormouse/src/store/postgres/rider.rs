//! A step's own writes: a transaction of its own that the outcome joins at the end.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::postgres::{PgConnection, Postgres};
use tokio::sync::{MappedMutexGuard, MutexGuard};

use super::commit::{self, Outcome};
use super::db::Db;
use super::types::{Columns, batch};
use crate::store::{Commit, Effects, Receipt, Rider, Written};
use crate::{Error, Result, WorkerId};

/// How long an outcome waits for a row that another transaction holds, and how often it looks.
const BUSY_TRIES_MAX: u32 = 2_000;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

type Transaction = sqlx::Transaction<'static, Postgres>;

/// The transaction that will commit a step's outcome. Use it as a `PgConnection`; the engine commits it, and rolls it
/// back if the step fails.
pub struct StepTransaction<'a>(MappedMutexGuard<'a, Transaction>);

impl<'a> StepTransaction<'a> {
    pub(crate) fn of(rider: MutexGuard<'a, Option<Rider>>) -> Result<Self> {
        let transaction = MutexGuard::try_map(rider, |rider| rider.as_mut()?.get_mut::<Transaction>());
        transaction.map(Self).map_err(|_| Error::WrongStore {
            asked_for: "transaction beside closures",
            instead: "use one way or the other in a step",
        })
    }
}

impl Deref for StepTransaction<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for StepTransaction<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}

pub(super) async fn begin(db: &Db) -> Result<Rider> {
    // In a task of its own: a step that is dropped while this runs must not leave a connection half way.
    let pool = db.steps.clone();
    let begun = tokio::spawn(async move { pool.begin().await }).await;
    let transaction = begun.map_err(|error| Error::Storage(Box::new(error)))??;
    Ok(Rider::new(transaction))
}

pub(super) async fn commit_with(
    db: Db,
    worker: WorkerId,
    outcome: Commit,
    rider: Rider,
) -> Result<Written<Receipt>> {
    // In a task of its own, for the same reason.
    let committed = tokio::spawn(async move {
        let mut transaction: Transaction = rider.into();
        let (receipt, effects) = join(&mut transaction, worker, &outcome).await?;
        match receipt {
            Some(receipt @ (Receipt::Held { .. } | Receipt::Released)) => {
                commit_it(&db, transaction, worker, &outcome, receipt, effects).await
            }
            Some(receipt) => {
                transaction.rollback().await?;
                Ok(Written { value: receipt, effects: Effects::default() })
            }
            None => {
                transaction.rollback().await?;
                commit::cancel(&db, worker, &outcome).await
            }
        }
    });
    committed.await.map_err(|error| Error::Storage(Box::new(error)))?
}

/// Writes the outcome into the step's transaction.
async fn join(
    transaction: &mut Transaction,
    worker: WorkerId,
    outcome: &Commit,
) -> Result<(Option<Receipt>, Effects)> {
    let outcomes = batch(&[Outcome::new(1, outcome, false)])?;
    for _ in 0..BUSY_TRIES_MAX {
        let row = commit::statement(worker, &outcomes, false).persistent(false).fetch_one(&mut **transaction);
        let row = row.await.map_err(refused)?;
        let receipt = commit::receipts(&row)?.pop().expect("one outcome, one receipt");
        if !matches!(receipt, Some(Receipt::Busy)) {
            return Ok((receipt, row.effects()?));
        }
        tokio::time::sleep(BUSY_PAUSE).await;
    }
    Err(Error::Busy("another transaction kept the instance locked".to_owned()))
}

/// Commits; if the answer is lost, finds out what it would have been.
async fn commit_it(
    db: &Db,
    transaction: Transaction,
    worker: WorkerId,
    outcome: &Commit,
    receipt: Receipt,
    effects: Effects,
) -> Result<Written<Receipt>> {
    let value = match transaction.commit().await {
        Ok(()) => receipt,
        Err(error) if error.as_database_error().is_some() => return Err(refused(error)),
        Err(error) => {
            tracing::info!(%error, id = %outcome.id, "the answer to a commit was lost, asking what happened");
            commit::ask(db, worker, outcome).await?.ok_or(error)?
        }
    };
    Ok(Written { value, effects })
}

/// What the database refuses here, the step's writes brought along; a lost connection is nobody's fault.
fn refused(error: sqlx::Error) -> Error {
    match error.as_database_error().and_then(sqlx::error::DatabaseError::code) {
        Some(code) if code == "25P02" => {
            Error::OwnWrites("a statement of the step failed before, and the step went on regardless".into())
        }
        // The server stops, or ended the connection.
        Some(code) if code.starts_with("57P") => error.into(),
        Some(_) => Error::OwnWrites(Box::new(error)),
        None => error.into(),
    }
}
