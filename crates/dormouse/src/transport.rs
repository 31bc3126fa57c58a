//! Transports: how requests are sent, how sends are paced and retried, and how answers may come back the same way.

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

/// Sends requests to the outside world. Implement it for a way of sending that dormouse does not have, and register it
/// with [`EngineBuilder::transport`](crate::EngineBuilder::transport).
///
/// Sending is at-least-once: a request is sent again, with the same idempotency key, until the transport reports that
/// it was accepted, and once more if this process dies before that is stored.
pub trait Transport: Send + Sync + 'static {
    /// Sends one request. The future is dropped when it takes longer than [`Sending::timeout`].
    fn send<'a>(&'a self, interaction: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>>;

    /// Receives the answers that come back this way, until the engine stops. A transport whose answers come in some
    /// other way, such as by the HTTP API, need not implement it.
    ///
    /// It is started again if it ends before that. When the engine stops, it may finish the answers in progress within
    /// the engine's drain time.
    fn receive(&self, reception: Reception) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { reception.stopped().await })
    }
}

/// The result of sending a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sent {
    /// It was accepted; the answer comes later, or has come.
    Accepted,
    /// It was accepted and answered at once.
    Answered(Json),
    /// It could not be sent; try again.
    Retry {
        /// Why.
        reason: String,
        /// How long to wait at least, if the receiver asked for that.
        after: Option<Duration>,
    },
    /// It will never be accepted: the item has failed.
    Rejected(String),
}

/// How a transport's requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sending {
    /// Requests being sent at a time, in this process (16 by default).
    pub concurrency_max: usize,
    /// Requests per second at most, in this process (unlimited by default).
    pub per_second_max: Option<u32>,
    /// How long one send may take (30 s by default).
    pub timeout: Duration,
    /// The wait before the second send; it doubles, with jitter, up to `backoff_cap` (1 s by default).
    pub backoff: Duration,
    /// The longest wait between sends (5 min by default).
    pub backoff_cap: Duration,
    /// How long to go on trying before the item fails (24 h by default).
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
