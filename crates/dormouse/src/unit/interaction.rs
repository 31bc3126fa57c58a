//! Units and interactions as they are stored.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{OnFailure, Shape};
use crate::words::words;
use crate::{InstanceId, Json, Trace};

/// A unit's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitId(pub i64);

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An interaction's id: unique in the database, and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InteractionId(pub i64);

impl fmt::Display for InteractionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

words! {
    /// Where a unit is in its life.
    UnitStatus: "status of a unit" {
        /// Its instance is parked on it.
        Open => "open",
        /// Answered: all of it, or its quorum.
        Completed => "completed",
        /// Its deadline passed.
        TimedOut => "timed_out",
        /// An item failed it, or its quorum can no longer be reached.
        Failed => "failed",
        /// Its instance was cancelled.
        Cancelled => "cancelled",
    }
}

words! {
    /// Where an interaction is in its life.
    InteractionStatus: "status of an interaction" {
        /// Not sent yet, or of a transport that sends nothing.
        Pending => "pending",
        /// Sent, and not answered yet.
        Dispatched => "dispatched",
        /// Answered with an output.
        Completed => "completed",
        /// Not answered in time.
        TimedOut => "timed_out",
        /// Answered with a failure, refused by its receiver, or given up.
        Failed => "failed",
        /// Cancelled: its unit was closed without it.
        Cancelled => "cancelled",
    }
}

impl InteractionStatus {
    /// Whether it still waits for its answer.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Dispatched)
    }
}

/// A unit as it is stored: the truth about what was asked and what is still to come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitView {
    /// Its id.
    pub id: UnitId,
    /// The instance that is, or was, parked on it.
    pub instance: InstanceId,
    /// Which of the instance's barriers it is.
    pub round: u32,
    /// Its shape.
    pub shape: Shape,
    /// Its status.
    pub status: UnitStatus,
    /// How it is sent.
    pub transport: String,
    /// What a failed or late item does.
    pub on_failure: OnFailure,
    /// How many interactions it has.
    pub interactions: u32,
    /// How many must complete; `None` waits for all to be resolved.
    pub quorum: Option<u32>,
    /// How many may be unresolved at a time.
    pub in_flight: Option<u32>,
    /// How many have completed.
    pub completed: u32,
    /// How many have failed or came too late.
    pub failed: u32,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// Its deadline.
    pub deadline: Option<Timestamp>,
    /// When it was closed.
    pub closed_at: Option<Timestamp>,
}

/// One request of a unit as it is stored: what the outside sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interaction {
    /// Its id.
    pub id: InteractionId,
    /// Its unit.
    pub unit: UnitId,
    /// Its index in the unit, from 0.
    pub item: u32,
    /// The instance that asks.
    pub instance: InstanceId,
    /// That instance's namespace.
    pub namespace: String,
    /// That instance's machine.
    pub machine: String,
    /// The version of it that asked.
    pub version: u32,
    /// The step that will see the answer.
    pub step: String,
    /// How it is sent.
    pub transport: String,
    /// Its status.
    pub status: InteractionStatus,
    /// The name of its effect, the same however often it is sent.
    pub idempotency_key: String,
    /// The id that its answer carries.
    pub correlation_id: Option<String>,
    /// How often it was handed to its transport.
    pub sends: u32,
    /// Since when it may be sent and answered; `None` while it waits for a place in flight.
    pub opened_at: Option<Timestamp>,
    /// When it must be answered: by its own time or with its unit, whichever is nearer.
    pub deadline: Option<Timestamp>,
    /// When its transport next tries to send it.
    pub send_at: Option<Timestamp>,
    /// When it was sent.
    pub dispatched_at: Option<Timestamp>,
    /// When it was resolved.
    pub resolved_at: Option<Timestamp>,
    /// The person or program that it was asked of, if one was named.
    pub for_assignee: Option<String>,
    /// The group that it was asked of, if one was named.
    pub for_group: Option<String>,
    /// The trace that its instance is part of: a transport passes it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// Who has claimed it, to answer it.
    pub assignee: Option<String>,
    /// Until when that claim holds.
    pub assigned_until: Option<Timestamp>,
    /// Whether an answer from outside resolved it.
    pub answered: bool,
    /// Who gave that answer, if that is known: a name, `resume token`, or the transport that it came by.
    pub answered_by: Option<String>,
    /// Why it failed; or why the last send of it failed, until the next.
    pub error: Option<String>,
    /// The request.
    pub request: Json,
    /// The output of its answer.
    pub output: Option<Json>,
}

impl Interaction {
    /// The store's time of the send that is under way, so that what is sent can expire by the store's clock. While it is
    /// in its transport's hands, it is the moment at which it would be sent again.
    #[cfg(any(feature = "webhook", feature = "nats"))]
    pub(crate) fn handed_out_at(&self) -> Timestamp {
        use crate::{Clock as _, SystemClock};
        self.send_at.or(self.opened_at).unwrap_or_else(|| SystemClock.now())
    }
}
