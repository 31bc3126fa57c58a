//! The client: start, signal, wait, look, operate. It needs a store, not an engine.

mod amend;
mod check;
mod doors;
mod elsewhere;
mod follow;
mod limit;
mod mail;
mod operate;
#[cfg(feature = "schedules")]
mod schedules;
mod signal;
mod start;
mod transports;
mod troubles;
mod units;
mod view;
mod what_if;
#[cfg(feature = "postgres")]
mod within;

use std::sync::Arc;

pub use self::amend::{AmendCall, EditCall};
use self::elsewhere::Elsewhere;
pub use self::operate::{CancelCall, PauseCall, PauseQueueCall, RetryCall, TagCall};
#[cfg(feature = "schedules")]
pub use self::schedules::{ScheduleView, Schedules};
pub use self::signal::SignalCall;
pub use self::start::{Start, Started};
pub(crate) use self::troubles::troubles;
pub use self::troubles::{Trouble, TroubleKind};
pub use self::what_if::{Foresight, Happening, Look};
use crate::diff::{Diff, diff};
use crate::limits::check_name;
use crate::store::{ServerStore, Store, Written};
use crate::{DEFAULT_NAMESPACE, Error, History, Limits, Registry, Result};

/// Starts, signals, waits for, looks at and operates on instances. It needs a store and no engine, so it also works in
/// a program that runs no steps. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    elsewhere: Arc<Elsewhere>,
    namespace: Arc<str>,
    limits: Limits,
    history: History,
}

impl Client {
    /// A client of a store that is already open. It knows no machines: where they are registered, use
    /// [`Engine::client`](crate::Engine::client) instead.
    pub fn on(store: Arc<dyn Store>) -> Self {
        Self::new(store, Arc::default(), Limits::default(), History::On)
    }

    pub(crate) fn new(
        store: Arc<dyn Store>,
        registry: Arc<Registry>,
        limits: Limits,
        history: History,
    ) -> Self {
        Self {
            store,
            registry,
            elsewhere: Arc::default(),
            namespace: DEFAULT_NAMESPACE.into(),
            limits,
            history,
        }
    }

    /// The same client in another namespace. It starts instances there, and finds only instances of that namespace, by
    /// id or by key.
    pub fn in_namespace(&self, namespace: &str) -> Result<Self> {
        check_name("namespace", namespace)?;
        Ok(Self { namespace: namespace.into(), ..self.clone() })
    }

    /// The namespace it works in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The store it works on.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The same store as a [`ServerStore`], for a program that serves HTTP. Fails with [`Error::WrongStore`] if the
    /// store does not implement it.
    pub fn server_store(&self) -> Result<Arc<dyn ServerStore>> {
        self.store.clone().server().ok_or(Error::WrongStore {
            asked_for: "server",
            instead: "serve a store that implements `ServerStore`, such as SQLite or PostgreSQL",
        })
    }

    /// The limits on what it sends: those of its engine.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The machines it knows: those of its engine.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Compares the machines it knows with the live rows of every namespace. Use it as a gate before a deploy. It runs
    /// nothing but migrations, as a dry run; `progress` is called with the number of rows compared so far.
    pub async fn diff(&self, progress: impl FnMut(u64)) -> Result<Diff> {
        diff(&*self.store, &self.registry, progress).await
    }

    /// Sends a write's pokes and returns its value.
    fn applied<T>(&self, written: Written<T>) -> T {
        self.store.poke(&written.effects);
        written.value
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
