//! What a running step reaches through its context, and the step's own writes, which are committed with its outcome.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard};

use crate::{Error, InstanceId, Interaction, Json, Result, UnitId, UnitView};

type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// What a running step can reach through its context. The engine implements it with its store.
pub(crate) trait Behind: Send + Sync {
    /// The unit that an instance was parked on.
    fn unit(&self, of: InstanceId) -> Later<'_, Option<UnitView>>;

    /// Up to `items_max` interactions of a unit from `from_item` on.
    fn items(&self, unit: UnitId, from_item: u32, items_max: usize) -> Later<'_, Vec<Interaction>>;

    /// Opens a transaction for the step's own writes.
    fn begin(&self) -> Later<'_, Rider>;

    /// Whether closures can run inside the commit.
    fn runs_closures(&self) -> bool;

    /// Passes on a progress report.
    fn report(&self, of: InstanceId, seq: u64, progress: Json);
}

/// A step's own writes, in a form that only the store that made them knows.
pub struct Rider(Box<dyn Any + Send>);

impl Rider {
    /// Wraps a store's own value.
    pub fn new<T: Any + Send>(own: T) -> Self {
        Self(Box::new(own))
    }

    /// What the store put in, if it is of that kind.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.0.downcast_mut()
    }

    /// What the store put in.
    ///
    /// # Panics
    /// If it is of another kind: riders come back to the store that made them.
    pub fn into<T: Any>(self) -> T {
        *self.0.downcast().expect("a rider comes back to the store that made it")
    }
}

impl std::fmt::Debug for Rider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rider")
    }
}

/// A step's own writes, gathered for the commit of its outcome.
pub(crate) struct Own {
    /// `None` where a step is explored and not run.
    behind: Option<Arc<dyn Behind>>,
    rider: Mutex<Option<Rider>>,
}

impl Own {
    pub(crate) fn new(behind: Arc<dyn Behind>) -> Self {
        Self { behind: Some(behind), rider: Mutex::new(None) }
    }

    pub(crate) fn nowhere() -> Self {
        Self { behind: None, rider: Mutex::new(None) }
    }

    pub(super) fn behind(&self) -> Result<&Arc<dyn Behind>> {
        self.behind.as_ref().ok_or(Error::WrongStore {
            asked_for: "database",
            instead: "`what-if` cannot run a step's own SQL; declare its result with `.gives(...)`",
        })
    }

    /// Passes on what the step reports, if it runs.
    pub(super) fn report(&self, of: InstanceId, seq: u64, progress: Json) {
        if let Some(behind) = &self.behind {
            behind.report(of, seq, progress);
        }
    }

    /// The transaction that rides with the outcome, opened by the first call.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "only PostgreSQL keeps a transaction open for a step")
    )]
    pub(crate) async fn transaction(&self) -> Result<MutexGuard<'_, Option<Rider>>> {
        let mut rider = self.rider.lock().await;
        if rider.is_none() {
            *rider = Some(self.behind()?.begin().await?);
        }
        Ok(rider)
    }

    /// The closures that run inside the commit; `None` if this store runs none, or a transaction is open instead.
    pub(crate) fn closures(&self) -> Result<Option<MutexGuard<'_, Option<Rider>>>> {
        let runs_closures = self.behind()?.runs_closures();
        Ok(runs_closures.then(|| self.rider.try_lock().ok()).flatten())
    }

    /// Takes the step's own writes, to commit or drop them. A task that the step left behind may still hold them.
    pub(crate) fn take(&self) -> Result<Option<Rider>, StillWrites> {
        self.rider.try_lock().map(|mut rider| rider.take()).map_err(|_| StillWrites)
    }
}

/// A task that a step left behind still holds its transaction.
#[derive(Debug, thiserror::Error)]
#[error(
    "the step returned while a task that it started still holds `cx.transaction()`; nothing of its own writes is \
     committed: await such tasks before the step returns"
)]
pub(crate) struct StillWrites;

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Own")
    }
}
