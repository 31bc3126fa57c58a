//! Connections: every verb is one statement on one of them.

use std::future::Future;
use std::io;
use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgArguments, PgConnection, PgRow, Postgres};
use sqlx::query::Query;

use super::fault::lost_a_race;
use super::pool::Pool;
use crate::Result;

/// How often a statement that lost a race is sent again.
const RACES_MAX: usize = 5;

/// A statement with what is bound to it.
pub(super) type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// The database, and how to talk to it.
#[derive(Clone)]
pub(super) struct Db {
    pub(super) pool: Pool,
    /// The connections that steps hold for their own writes, apart from ours: however many they are, and however long
    /// they take, the engine goes on.
    pub(super) steps: Pool,
    /// Behind a transaction-mode pooler, what was parsed on one server connection may be run on another: each
    /// statement is then a transaction of its own.
    pub(super) pooled: bool,
    /// How long a statement may go without an answer before its connection counts as dead: a network that
    /// swallows everything tells nobody.
    pub(super) patience: Duration,
}

impl Db {
    /// Runs a statement that answers with one row.
    pub(super) async fn one<'q>(&self, statement: impl Fn() -> Statement<'q>) -> Result<PgRow> {
        Ok(self.raw_one(statement).await?)
    }

    /// Like [`Self::one`], with the error as the driver has it.
    pub(super) async fn raw_one<'q>(
        &self,
        statement: impl Fn() -> Statement<'q>,
    ) -> Result<PgRow, sqlx::Error> {
        let mut rows = self.raw_all(statement).await?;
        rows.pop().ok_or(sqlx::Error::RowNotFound)
    }

    /// Runs a statement that answers with rows.
    pub(super) async fn all<'q>(&self, statement: impl Fn() -> Statement<'q>) -> Result<Vec<PgRow>> {
        Ok(self.raw_all(statement).await?)
    }

    async fn raw_all<'q>(&self, statement: impl Fn() -> Statement<'q>) -> Result<Vec<PgRow>, sqlx::Error> {
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
        // What the database refuses, it refuses on a connection that is as good as before.
        if answer.as_ref().err().is_none_or(|error| error.as_database_error().is_some()) {
            lent.give_back();
        }
        answer
    }

    /// Waits for an answer, but not for ever.
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
        let mut tx = conn.begin().await?;
        let rows = statement.persistent(false).fetch_all(&mut *tx).await?;
        tx.commit().await?;
        Ok(rows)
    }
}
