//! Connections: every verb is one statement on one of them.
//!
//! No statement of ours waits long for a lock: it fails, gives its connection back, and is sent again after a pause. So
//! a call that waits for somebody else's transaction holds nothing that others need.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::Connection;
use sqlx::postgres::{PgArguments, PgConnection, PgRow, Postgres};
use sqlx::query::Query;
use tokio::sync::Semaphore;

use super::fault::{certainly_undone, lock_timed_out, lost_a_race};
use super::pool::Pool;
use crate::Result;

/// How often a statement that lost a race is sent again.
const RACES_MAX: usize = 5;
/// How long a statement that could not have its lock is put off: twice as long each time, up to the second.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// How a transaction begins where connections cannot be set up beforehand. The level is ours whatever the server's default
/// is: a lane's lock decides by what is there when it was granted.
const BEGIN: &str = "begin isolation level read committed; set local lock_timeout = '250ms'";
/// Sent once on each connection, if it stays with one process of the server. Statements other than the verbs are
/// planned there once, too, perhaps on empty tables, and their plans are kept.
pub(super) const SET_UP: &str = "set default_transaction_isolation = 'read committed'; set lock_timeout = '250ms'; \
    set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; set jit = off";

/// A statement with what is bound to it.
pub(super) type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// The database, and how to talk to it.
#[derive(Clone)]
pub(super) struct Db {
    pub(super) pool: Pool,
    /// The connections that steps hold for their own writes, apart from ours: however many they are, and however long
    /// they take, the engine goes on.
    pub(super) steps: Pool,
    /// Places for statements that are sent again because they could not have a lock: fewer than connections.
    pub(super) again: Arc<Semaphore>,
    /// Behind a transaction-mode pooler, a statement that was prepared on one server connection may run on another. So
    /// each statement is then a transaction of its own.
    pub(super) pooled: bool,
    /// How long a statement may go without an answer before its connection counts as dead: a network that drops
    /// everything reports no error.
    pub(super) patience: Duration,
}

impl Db {
    /// Runs a statement that answers with one row.
    pub(super) async fn one<'q>(&self, statement: impl Fn() -> Statement<'q>) -> Result<PgRow> {
        let mut rows = self.all(statement).await?;
        Ok(rows.pop().ok_or(sqlx::Error::RowNotFound)?)
    }

    /// Runs a statement that answers with rows. If it needs a lock that another transaction holds, it is sent again for
    /// as long as our patience lasts.
    pub(super) async fn all<'q>(&self, statement: impl Fn() -> Statement<'q>) -> Result<Vec<PgRow>> {
        match self.raw_all(&statement).await {
            Err(error) if lock_timed_out(&error) => Ok(self.again(|| self.raw_all(&statement)).await?),
            other => Ok(other?),
        }
    }

    /// Like [`Self::one`], with the error as the driver has it. A lock that cannot be had is the caller's to deal with.
    pub(super) async fn raw_one<'q>(
        &self,
        statement: impl Fn() -> Statement<'q>,
    ) -> Result<PgRow, sqlx::Error> {
        let mut rows = self.raw_all(&statement).await?;
        rows.pop().ok_or(sqlx::Error::RowNotFound)
    }

    /// Tries a statement again that could not get a lock, until it gets it or our patience ends, without a connection
    /// in between.
    pub(super) async fn again<T, F: Future<Output = Result<T, sqlx::Error>>>(
        &self,
        attempt: impl Fn() -> F,
    ) -> Result<T, sqlx::Error> {
        let started = Instant::now();
        let mut pause = PAUSE_MIN;
        loop {
            // Not all at the same moment.
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            pause = (pause * 2).min(PAUSE_MAX);
            let place = self.again.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
            let answer = attempt().await;
            drop(place);
            match answer {
                Err(error) if lock_timed_out(&error) && started.elapsed() < self.patience => {}
                other => return other,
            }
        }
    }

    async fn raw_all<'q>(&self, statement: &impl Fn() -> Statement<'q>) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut races = 0;
        loop {
            match self.send(statement()).await {
                Err(error) if lost_a_race(&error) && races < RACES_MAX => races += 1,
                other => return other,
            }
        }
    }

    async fn send(&self, statement: Statement<'_>) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut lent = self.pool.acquire().await?;
        let answer = self.patiently(self.ask(&mut lent, statement)).await;
        // After a refusal by the database, the connection is still usable.
        if answer.as_ref().err().is_none_or(certainly_undone) {
            lent.give_back();
        }
        answer
    }

    /// Waits for an answer, but not forever.
    pub(super) async fn patiently<T>(
        &self,
        answer: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        tokio::time::timeout(self.patience, answer).await.unwrap_or_else(|_| {
            let told = format!("the database did not answer within {:?}", self.patience);
            Err(io::Error::new(io::ErrorKind::TimedOut, told).into())
        })
    }

    async fn ask(
        &self,
        conn: &mut PgConnection,
        statement: Statement<'_>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        if !self.pooled {
            return statement.fetch_all(conn).await;
        }
        let mut tx = conn.begin_with(BEGIN).await?;
        let rows = statement.persistent(false).fetch_all(&mut *tx).await?;
        tx.commit().await?;
        Ok(rows)
    }
}
