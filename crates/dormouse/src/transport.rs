//! Transports: how requests leave, how a sender goes about it, and how answers may come back the same way.

#[cfg(any(feature = "nats", feature = "webhook"))]
mod envelope;
#[cfg(feature = "nats")]
mod nats;
mod reception;
#[cfg(feature = "webhook")]
mod webhook;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "nats")]
pub use self::nats::Nats;
pub use self::reception::Reception;
#[cfg(feature = "webhook")]
pub use self::webhook::{Targets, Webhook};
use crate::{Interaction, Json, Retry};

/// Hands requests to the outside world.
///
/// It is at-least-once: a request is handed over again, with the same idempotency key, until the transport says that
/// it was accepted, and once more if this process dies before that is written down.
pub trait Transport: Send + Sync + 'static {
    /// Hands one request over. Dropped when it takes longer than [`Sending::timeout`].
    fn send<'a>(&'a self, interaction: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>>;

    /// Brings in the answers that come back this way, until the engine stops. Whoever is asked some other way, such as
    /// by an HTTP API, brings in none, and leaves this as it is.
    ///
    /// It is started anew if it ends before that. What it has in hand when the engine stops it may finish, within the
    /// engine's drain time.
    fn receive(&self, reception: Reception) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { reception.stopped().await })
    }
}

/// What became of a request that was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sent {
    /// It was accepted; the answer comes later, or has come.
    Accepted,
    /// It was accepted and answered at once.
    Answered(Json),
    /// It could not be handed over, and is to be tried again.
    Retry {
        /// Why.
        reason: String,
        /// Not before this, as the receiver asks.
        after: Option<Duration>,
    },
    /// It will never be accepted: the item has failed.
    Rejected(String),
}

/// How a transport's requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sending {
    /// Requests under way at a time, in this process (16 unless set).
    pub concurrency_max: usize,
    /// Requests per second at most, in this process (unlimited unless set).
    pub per_second_max: Option<u32>,
    /// How long one send may take (30 s unless set).
    pub timeout: Duration,
    /// The wait before the second send; it doubles, with jitter, up to `backoff_cap` (1 s unless set).
    pub backoff: Duration,
    /// The longest wait between sends (5 min unless set).
    pub backoff_cap: Duration,
    /// How long to go on trying before the item has failed (24 h unless set).
    pub give_up_after: Duration,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            concurrency_max: 16,
            per_second_max: None,
            timeout: Duration::from_secs(30),
            backoff: Duration::from_secs(1),
            backoff_cap: Duration::from_secs(300),
            give_up_after: Duration::from_secs(24 * 3600),
        }
    }
}

impl Sending {
    /// How long to wait after this many sends have failed.
    pub(crate) fn delay(&self, sends: u32) -> Duration {
        let retry = Retry::times(u32::MAX).backoff(self.backoff, self.backoff_cap);
        retry.delay(sends.saturating_sub(1).min(u32::MAX - 2)).expect("it never gives up by itself")
    }
}

/// A transport by its name.
#[derive(Clone)]
pub(crate) struct NamedTransport {
    pub(crate) name: String,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) sending: Sending,
}

impl fmt::Debug for NamedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedTransport").field("name", &self.name).finish_non_exhaustive()
    }
}
