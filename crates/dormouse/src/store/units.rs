//! The part of the store that keeps units: opening one is an outcome, all else about it is here.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::{Gate, Namespaces, Portion, Reply, Written};
pub use crate::unit::{Completed, Completion, Proof, Refusal, Which};
use crate::{InstanceId, Interaction, InteractionId, InteractionStatus, UnitId, UnitView};

/// The verbs of units and interactions.
///
/// A unit is open exactly while its instance is parked on its round. So resolving an interaction takes the instance's
/// lock and is a transition of it: each is admitted once, and the last one wakes the instance in the same commit.
pub trait UnitStore: Send + Sync + 'static {
    /// Completes or fails interactions, and returns the result of each. One whose instance somebody else holds is not
    /// waited for: it is refused as [`Refusal::Busy`], and may be sent again.
    fn complete(&self, batch: Vec<Completion>) -> Reply<'_, Written<Vec<Completed>>>;

    /// Takes up to `rows_max` interactions of a transport that are to be sent now. Nobody else gets them during `lease`;
    /// one that is not reported by then ([`UnitStore::sent`]) is handed out again. It hands out no more than the transport's
    /// limits let ([`TransportStore`](super::TransportStore)), and waits for nobody.
    fn outbox(
        &self,
        transport: String,
        namespaces: Namespaces,
        rows_max: usize,
        lease: Duration,
    ) -> Reply<'_, Outbox>;

    /// Says what became of sends. Those that cannot be noted now, as somebody else holds their instance, come back.
    fn sent(&self, batch: Vec<SendReport>) -> Reply<'_, Written<Vec<SendReport>>>;

    /// Claims an open interaction for a person or a program, for a while; claiming it again extends the claim, and a
    /// claim for no time at all gives it back.
    fn assign(
        &self,
        namespace: String,
        id: InteractionId,
        assignee: String,
        lease: Duration,
    ) -> Reply<'_, Assigned>;

    /// The unit that an instance is parked on, or was until it progressed.
    fn unit(&self, instance: InstanceId) -> Reply<'_, Option<UnitView>>;

    /// Up to `items_max` interactions of a unit from `from_item` on, in item order.
    fn items(&self, unit: UnitId, from_item: u32, items_max: usize) -> Reply<'_, Vec<Interaction>>;

    /// One interaction; of several with one correlation id, an open one before others, and the newest.
    fn interaction(&self, namespace: String, which: Which) -> Reply<'_, Option<Interaction>>;

    /// Interactions, oldest first. Items that wait for a place in flight are not among them. A page ends with the one whose
    /// documents reach [`PAGE_BYTES_MAX`](crate::store::PAGE_BYTES_MAX), and goes on after it.
    fn interactions(&self, filter: InteractionFilter) -> Reply<'_, Portion<Interaction>>;

    /// What waits to be sent, by transport and namespace: of one namespace, or of all.
    fn outboxes(&self, namespace: Option<String>) -> Reply<'_, Vec<OutboxDepth>>;

    /// How many of these interactions there are, by transport and status, and the oldest of each.
    fn count_interactions(&self, filter: InteractionFilter) -> Reply<'_, Vec<InteractionCount>>;
}

/// Interactions in a sender's hands.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// What is to be sent.
    pub taken: Vec<Interaction>,
    /// When there may be more.
    pub next: Option<Timestamp>,
    /// What the transport's limits say.
    pub gate: Gate,
    /// The store's time.
    pub now: Option<Timestamp>,
}

/// The result of one send.
#[derive(Clone, Debug)]
pub struct SendReport {
    /// The interaction.
    pub id: InteractionId,
    /// Which of its sends this was: an older one says nothing.
    pub sends: u32,
    /// How it went.
    pub outcome: SendOutcome,
}

/// How a send ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// It was accepted.
    Sent,
    /// It is to be sent again.
    Retry {
        /// After this time.
        after: Duration,
        /// What went wrong.
        error: String,
    },
    /// It will never be accepted.
    Rejected(String),
}

/// The result of claiming an interaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// It is the asker's until then.
    Until(Timestamp),
    /// Somebody else has it.
    Taken {
        /// Who.
        by: String,
        /// Until when.
        until: Timestamp,
    },
    /// It is not open: unknown, of another namespace, resolved, or still waiting for its place in flight.
    NotOpen,
}

/// Which interactions to list or count.
#[derive(Clone, Debug, Default)]
pub struct InteractionFilter {
    /// In this namespace.
    pub namespace: Option<String>,
    /// In this status.
    pub status: Option<InteractionStatus>,
    /// Sent by this transport.
    pub transport: Option<String>,
    /// Asked by this machine.
    pub machine: Option<String>,
    /// Whose answer this step will see.
    pub step: Option<String>,
    /// Asked by this instance.
    pub instance: Option<InstanceId>,
    /// Asked of this person or program, or claimed by them at this moment.
    pub assignee: Option<String>,
    /// Asked of this group.
    pub group: Option<String>,
    /// Opened before this.
    pub opened_before: Option<Timestamp>,
    /// Continue after this one: the last of the page before.
    pub after: Option<InteractionId>,
    /// At most this many.
    pub limit: usize,
}

/// How many interactions of a transport are in a status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InteractionCount {
    /// Their transport.
    pub transport: String,
    /// Their status.
    pub status: InteractionStatus,
    /// How many they are.
    pub count: u64,
    /// When the oldest of them was opened.
    pub oldest: Timestamp,
}

/// How far the requests of one outbox are counted.
pub const OUTBOX_MAX: u64 = 1_000;

/// What waits to be sent by a transport in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxDepth {
    /// The transport.
    pub transport: String,
    /// The namespace.
    pub namespace: String,
    /// How many requests, counted up to [`OUTBOX_MAX`].
    pub count: u64,
    /// How many of them have failed before.
    pub failing: u64,
    /// Since when the oldest of them may be sent.
    pub oldest_at: Timestamp,
    /// Of those that have failed before, the one that is tried again first.
    pub first: Option<FailingSend>,
}

/// A request whose last send failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingSend {
    /// The instance that asks.
    pub instance: InstanceId,
    /// How often it was sent.
    pub sends: u32,
    /// When it is sent again.
    pub next_at: Timestamp,
    /// Why the last send failed, cut after 1,000 characters.
    pub error: String,
}

/// The name by which a transport's outbox is poked: one that no queue can have.
pub(crate) fn outbox_queue(transport: &str) -> String {
    format!("{OUTBOX_PREFIX}{transport}")
}

/// Names hold no control characters, so no queue is called so.
pub(crate) const OUTBOX_PREFIX: &str = "outbox\t";
