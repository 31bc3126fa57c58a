//! The client: start, signal, wait, look, operate. It needs a store, not an engine.

mod amend;
mod check;
mod doors;
mod elsewhere;
mod operate;
mod signal;
mod start;
mod units;
mod view;
mod what_if;
#[cfg(feature = "postgres")]
mod within;

use std::sync::Arc;

pub use self::amend::AmendCall;
use self::elsewhere::Elsewhere;
pub use self::operate::{CancelCall, PauseCall, PauseQueueCall, RetryCall, TagCall};
pub use self::signal::SignalCall;
pub use self::start::{Start, Started};
pub use self::what_if::{Foresight, Happening, Look};
use crate::diff::{Diff, diff};
use crate::limits::check_name;
use crate::store::{ServerStore, Store, Written};
use crate::{DEFAULT_NAMESPACE, Error, History, Limits, Registry, Result};

/// What callers use. Cheap to clone.
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
    /// A client of a store that is open already.
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

    /// The same client in another namespace: what it starts is there, and it finds what is there, by id or key.
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

    /// The same store with what a server needs beside; an error if the store leaves that out.
    pub fn server_store(&self) -> Result<Arc<dyn ServerStore>> {
        self.store.clone().server().ok_or(Error::WrongStore {
            asked_for: "server",
            instead: "serve a store that implements `ServerStore`, such as SQLite or PostgreSQL",
        })
    }

    /// The bounds on what it hands in: those of the engine it comes from.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The machines it knows: those of the engine it comes from.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Compares the machines it knows with the live rows of every namespace: the gate before a deploy. Nothing is run but
    /// migrations, as a dry run; `progress` is told how many rows were looked at.
    pub async fn diff(&self, progress: impl FnMut(u64)) -> Result<Diff> {
        diff(&*self.store, &self.registry, progress).await
    }

    /// Passes on what a write made possible, and gives its answer.
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
