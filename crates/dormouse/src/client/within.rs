//! Starting and signalling in the caller's own transaction: both happen if and only if that transaction commits.
//!
//! That commit also sends the pokes. Until then the signalled instances stay locked, so keep the transaction short.

use super::Client;
use super::signal::{check_target, traced};
use super::start::one;
use crate::store::postgres;
use crate::{Delivered, Inserted, InstanceId, NewInstance, NewSignal, Result, Target};

impl Client {
    /// Starts an instance in the caller's transaction, on PostgreSQL.
    ///
    /// If the key is taken, it fails with [`Error::KeyTaken`](crate::Error::KeyTaken); the transaction stays usable.
    pub async fn start_in(&self, conn: &mut postgres::Connection, new: NewInstance) -> Result<InstanceId> {
        let key = new.key.clone();
        one(self.start_many_in(conn, [new]).await?, key)
    }

    /// Starts many instances in the caller's transaction, on PostgreSQL, and returns, for each, whether it was inserted
    /// or its key was taken.
    pub async fn start_many_in(
        &self,
        conn: &mut postgres::Connection,
        new: impl IntoIterator<Item = NewInstance>,
    ) -> Result<Vec<Inserted>> {
        postgres::insert_in(conn, self.admit_all(new).await?).await
    }

    /// Sends a signal in the caller's transaction, on PostgreSQL.
    ///
    /// If the target is unknown or has ended, it fails with [`Error::NoTarget`](crate::Error::NoTarget); the transaction stays usable.
    pub async fn signal_in(
        &self,
        conn: &mut postgres::Connection,
        target: impl Into<Target>,
        signal: NewSignal,
    ) -> Result<Delivered> {
        let (target, signal) = (target.into(), traced(signal));
        signal.check(&self.limits)?;
        check_target(&target)?;
        signal.check_kept_by(&target)?;
        if self.might_refuse(&signal).await?
            && let Some(to) = postgres::addressee_in(conn, &self.namespace, &target).await?
        {
            self.check_signal(&to.machine, to.version, &to.awaits, &signal).await?;
        }
        let delivery = self.delivery(target.clone(), signal);
        self.stored(postgres::deliver_in(conn, delivery).await?, target)
    }
}
