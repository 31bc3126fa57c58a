//! The verbs and queries of transports: what limits their sends, over all workers.

use std::time::Duration;

use jiff::Timestamp;

use super::{Reply, Written};
use crate::rules::{Allowed, TransportHead};
pub use crate::rules::{BreakerStatus, Held, Judged, SendTally};
use crate::{TransportChange, TransportLimits};

/// Limits of transports: their rate, what is in flight, and their breaker.
///
/// They hold for a transport's name, over all namespaces and workers, by the store's time. [`UnitStore::outbox`] keeps to
/// them: it hands out no more than they let, and says what the rest waits for. What waits is left as it is: it is neither
/// counted as sent nor looked at.
///
/// [`UnitStore::outbox`]: super::UnitStore::outbox
pub trait TransportStore: Send + Sync + 'static {
    /// Notes what code declares for a transport. It holds where no operator set something else.
    fn declare_transport(&self, name: String, limits: TransportLimits) -> Reply<'_, Written<()>>;

    /// Changes what limits a transport, from now on. What is in flight goes on; what was sent still counts in its rate.
    fn set_transport(&self, name: String, change: TransportChange) -> Reply<'_, Written<()>>;

    /// Closes a transport's breaker, and answers whether it was open.
    fn close_breaker(&self, name: String) -> Reply<'_, Written<bool>>;

    /// Judges a transport by results of its sends, which may open or close its breaker. Results of sends that were taken
    /// before the breaker's last change say nothing. If another transaction holds the transport, the answer is
    /// [`Judged::Busy`], and the results may be sent again.
    fn judge(&self, name: String, tally: SendTally) -> Reply<'_, Written<Judged>>;

    /// Transports that code declared or an operator limited, in the order of their names: those after this one, or from
    /// the first.
    fn transports(&self, after: Option<String>, rows_max: usize) -> Reply<'_, Vec<TransportView>>;

    /// One of them.
    fn transport(&self, name: String) -> Reply<'_, Option<TransportView>>;
}

/// A transport, what limits it, and how much of that is in use.
#[derive(Clone, Debug, PartialEq)]
pub struct TransportView {
    /// Its name.
    pub name: String,
    /// What limits it.
    pub limits: TransportLimits,
    /// What code declares; `None` if no engine has had it yet.
    pub declared: Option<TransportLimits>,
    /// What an operator set in place of that: some of `rate`, `in_flight` and `breaker`.
    pub changed: Vec<String>,
    /// When an operator last changed it.
    pub changed_at: Option<Timestamp>,
    /// Requests that are being sent, or are sent and not answered, counted up to [`WIDTH_MAX`](crate::WIDTH_MAX).
    pub in_flight: u64,
    /// What the next request waits for.
    pub held: Option<Held>,
    /// Until when, if the clock alone lets it go.
    pub held_until: Option<Timestamp>,
    /// Its breaker.
    pub breaker: BreakerView,
}

/// A transport's breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerView {
    /// Whether it lets sends through.
    pub status: BreakerStatus,
    /// Failures in a row.
    pub failures: u32,
    /// Since when it does not.
    pub opened_at: Option<Timestamp>,
    /// When the next probe is sent.
    pub open_until: Option<Timestamp>,
    /// How the last send failed, cut after 200 characters.
    pub error: Option<String>,
}

/// What the transports' limits say to a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// What further requests wait for.
    pub held: Option<Held>,
    /// The epoch of the breaker, for [`SendTally`].
    pub epoch: i64,
    /// Whether failures are to be reported: there is a breaker.
    pub judges: bool,
    /// Whether responses are to be reported, too: there were failures.
    pub is_watched: bool,
}

/// What is stored of a transport.
pub(crate) struct StoredTransport {
    pub(crate) name: String,
    pub(crate) head: TransportHead,
    pub(crate) declared: Option<String>,
    pub(crate) changed: String,
    pub(crate) changed_at: Option<Timestamp>,
}

impl StoredTransport {
    pub(crate) fn view(self, in_flight: u64, now: Timestamp) -> TransportView {
        let Self { name, mut head, declared, changed, changed_at } = self;
        let (in_use, lease) =
            (usize::try_from(in_flight).unwrap_or(usize::MAX), Duration::from_secs(24 * 3600));
        let Allowed { sends, new, held } = head.allows(1, in_use, lease, now);
        let held = held.filter(|_| sends.min(new) == 0);
        TransportView {
            name,
            limits: head.limits,
            // Written by us; what cannot be read was changed by hand, and declares nothing.
            declared: declared.map(|declared| serde_json::from_str(&declared).unwrap_or_default()),
            changed: fields(&changed),
            changed_at,
            in_flight,
            held,
            held_until: held.and_then(|held| head.until(held, now)),
            breaker: BreakerView {
                status: head.breaker_status(now),
                failures: head.failures,
                opened_at: head.opened_at,
                open_until: head.open_until,
                error: head.error,
            },
        }
    }
}

fn fields(document: &str) -> Vec<String> {
    let fields: serde_json::Map<_, _> = serde_json::from_str(document).unwrap_or_default();
    fields.into_iter().map(|(field, _)| field).collect()
}

impl Gate {
    pub(crate) fn of(head: &TransportHead, held: Option<Held>) -> Self {
        Self { held, epoch: head.epoch, judges: head.limits.breaker.is_some(), is_watched: head.is_watched() }
    }
}

/// The name by which senders are poked that a transport's limits hold up: one that no queue can have.
pub(crate) fn gate_queue(transport: &str) -> String {
    format!("gate\t{transport}")
}
