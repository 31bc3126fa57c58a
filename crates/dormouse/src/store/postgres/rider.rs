//! A step's own writes: a transaction of its own that the outcome joins at the end.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tokio::sync::{MappedMutexGuard, MutexGuard};

use super::commit;
use super::db::Db;
use super::decided::{Answer, Moved, answers, decided_alone};
use super::fault::{certainly_undone, sqlstate};
use super::pool::Lent;
use super::types::Columns;
use crate::store::{Commit, Effects, Receipt, Rider, Written};
use crate::{Context, Error, Result, WorkerId};

/// How long an outcome waits for a row that another transaction holds, and how often it looks.
const BUSY_TRIES_MAX: u32 = 2_000;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// The level is ours whatever the server's default is: a lane's lock decides by what is there when it was granted.
const BEGIN: &str = "begin isolation level read committed";

/// The transaction that will commit a step's outcome. Use it as a `PgConnection`; the engine commits it, and rolls it
/// back if the step fails.
pub struct StepTransaction<'a>(MappedMutexGuard<'a, Lent>);

impl Context {
    /// The transaction that will commit this step's outcome, to write the step's own tables with: both are committed,
    /// or neither. It is opened by the first call; a step that does not call it pays nothing.
    ///
    /// On PostgreSQL. On SQLite, which has one writer, use [`Context::in_commit`].
    pub async fn transaction(&self) -> Result<StepTransaction<'_>> {
        StepTransaction::of(self.own.transaction().await?)
    }
}

impl<'a> StepTransaction<'a> {
    fn of(rider: MutexGuard<'a, Option<Rider>>) -> Result<Self> {
        let transaction = MutexGuard::try_map(rider, |rider| rider.as_mut()?.get_mut::<Lent>());
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

/// A connection with a transaction open. Wherever it is dropped, it is closed, and nothing of it has happened.
pub(super) async fn begin(db: &Db) -> Result<Rider> {
    let mut own = db.steps.acquire().await?;
    db.patiently(open(&mut own)).await?;
    Ok(Rider::new(own))
}

pub(super) async fn commit_with(
    db: &Db,
    worker: WorkerId,
    outcome: &Commit,
    rider: Rider,
) -> Result<Written<Receipt>> {
    let mut own: Lent = rider.into();
    let (receipt, effects) = join(db, &mut own, worker, outcome).await?;
    match receipt {
        Some(receipt @ (Receipt::Held { .. } | Receipt::Released)) => {
            let value = commit_it(db, own, worker, outcome, receipt).await?;
            let mail = !outcome.mail.is_empty();
            Ok(Written { value, effects: Effects { mail, ..effects } })
        }
        Some(receipt) => {
            roll_back(db, own).await?;
            Ok(Written { value: receipt, effects: Effects::default() })
        }
        None => {
            roll_back(db, own).await?;
            commit::cancel(db, worker, outcome).await
        }
    }
}

/// Writes the outcome into the step's transaction.
async fn join(
    db: &Db,
    own: &mut Lent,
    worker: WorkerId,
    outcome: &Commit,
) -> Result<(Option<Receipt>, Effects)> {
    let mut moved = None;
    for _ in 0..BUSY_TRIES_MAX {
        let decided = decided_alone(outcome, moved.as_ref(), false)?;
        let statement = commit::own(worker, &decided).persistent(false);
        let row = db.patiently(statement.fetch_one(&mut **own)).await.map_err(refused)?;
        match answers(&row)?.pop().expect("one outcome, one answer") {
            Answer::Receipt(Receipt::Busy) => tokio::time::sleep(BUSY_PAUSE).await,
            Answer::Receipt(receipt) => return Ok((Some(receipt), row.effects()?)),
            Answer::Cancel => return Ok((None, row.effects()?)),
            Answer::Moved(fresh) => moved.get_or_insert_with(|| Moved::of(outcome)).meets(outcome, fresh),
        }
    }
    Err(Error::Busy("another transaction kept the instance locked".into()))
}

/// Commits; if the answer is lost, finds out what it would have been.
async fn commit_it(
    db: &Db,
    mut own: Lent,
    worker: WorkerId,
    outcome: &Commit,
    receipt: Receipt,
) -> Result<Receipt> {
    match db.patiently(say(&mut own, "commit")).await {
        Ok(()) => {
            own.give_back();
            Ok(receipt)
        }
        Err(error) if certainly_undone(&error) => Err(refused(error)),
        Err(error) => {
            tracing::info!(%error, id = %outcome.head.id, "the answer to a commit was lost, asking what happened");
            Ok(commit::ask(db, worker, outcome).await?.ok_or(error)?)
        }
    }
}

async fn roll_back(db: &Db, mut own: Lent) -> Result<()> {
    db.patiently(say(&mut own, "rollback")).await?;
    own.give_back();
    Ok(())
}

/// Opens a transaction that is held by no value. To the driver, such a connection is in a transaction from then on, so
/// that one which a step opens with it is a savepoint.
async fn open(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    if conn.is_in_transaction() {
        return say(conn, BEGIN).await;
    }
    std::mem::forget(conn.begin_with(BEGIN).await?);
    Ok(())
}

async fn say(conn: &mut PgConnection, word: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(word).execute(conn).await.map(drop)
}

/// If the database refuses the commit, the step's own writes are at fault; a lost connection is nobody's fault.
fn refused(error: sqlx::Error) -> Error {
    if !certainly_undone(&error) {
        return error.into();
    }
    if sqlstate(&error).as_deref() == Some("25P02") {
        return Error::OwnWrites(
            "an earlier statement of the step failed, and the step did not return its error".into(),
        );
    }
    Error::OwnWrites(Box::new(error))
}
