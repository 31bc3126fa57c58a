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
use crate::{Breaker, Interaction, Json, Retry, SendRate, TransportLimits};

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
///
/// `rate`, `in_flight_max` and `breaker` are stored, and hold for the transport's name over all workers. Operators may set
/// others in their place at run time: [`Client::set_transport`](crate::Client::set_transport). If programs declare different
/// ones, those of the program that started last hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sending {
    /// Requests being sent at a time, in this process (16 by default).
    pub concurrency_max: usize,
    /// How many are sent in a period, by all workers together (unlimited by default).
    pub rate: Option<SendRate>,
    /// Requests that are sent and not answered, at a time, over all instances and workers (unlimited by default).
    pub in_flight_max: Option<u32>,
    /// When sending stops because it fails, for all workers (after 10 failures in a row by default).
    pub breaker: Option<Breaker>,
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
            rate: None,
            in_flight_max: None,
            breaker: Some(Breaker::default()),
            timeout: Duration::from_secs(30),
            backoff: Duration::from_secs(1),
            backoff_cap: Duration::from_secs(300),
            give_up_after: Duration::from_secs(24 * 3600),
        }
    }
}

impl Sending {
    /// What limits it over all workers.
    pub(crate) fn limits(&self) -> TransportLimits {
        TransportLimits { rate: self.rate, in_flight: self.in_flight_max, breaker: self.breaker }
    }

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
