//! History: one event for each committed transition. The row is the truth; this is a record of how it got there.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Json;
use crate::words::words;

/// Whether an instance's transitions are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// Everything, until the instance itself is collected.
    #[default]
    On,
    /// Nothing.
    Off,
}

/// How long ended instances and old events are kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retention {
    /// Ended instances and their history go this long after their end; `None` keeps them.
    pub ended: Option<Duration>,
    /// Events of live instances are removed when they are this old and a later event has the state; `None` keeps them.
    pub events: Option<Duration>,
}

/// One committed transition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number in the instance's history: gapless, from 1.
    pub seq: u64,
    /// What happened.
    pub kind: EventKind,
    /// The version the instance had afterwards.
    pub version: u32,
    /// The step the instance was at afterwards.
    pub step: String,
    /// The state afterwards.
    pub state: Json,
    /// Further details: names, deadline, payload, error.
    pub data: Option<Json>,
    /// When.
    pub at: Timestamp,
    /// The run of the step that caused it; `None` if no step did, for example if a signal or the clock woke it.
    pub run: Option<Run>,
}

/// One run of a step, from when its worker started it to its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When it started, by the store's time.
    pub started_at: Timestamp,
    /// How long it took, its error handler included.
    pub took_us: u64,
    /// Its last report of [`Context::progress`](crate::Context::progress).
    pub progress: Option<Json>,
}

words! {
    /// The kind of transition that an event records.
    #[non_exhaustive]
    EventKind: "kind of event" {
        /// The instance was inserted.
        Created => "created",
        /// A step went on to the next one, or to sleep.
        StepCompleted => "step.completed",
        /// A step will be tried again.
        StepRetried => "step.retried",
        /// It parked on signals.
        SignalWaiting => "signal.waiting",
        /// An awaited signal woke it.
        SignalReceived => "signal.received",
        /// An operator removed a signal from its inbox.
        SignalDropped => "signal.dropped",
        /// An operator changed the payload of a signal in its inbox.
        SignalEdited => "signal.edited",
        /// An operator changed its state.
        StateEdited => "state.edited",
        /// The await's deadline woke it.
        SignalTimeout => "signal.timeout",
        /// It spawned children and parked on their barrier.
        ChildrenSpawned => "children.spawned",
        /// The barrier was released.
        ChildrenJoined => "children.joined",
        /// The barrier's deadline woke it.
        ChildrenTimeout => "children.timeout",
        /// It opened a unit and parked on it.
        UnitOpened => "unit.opened",
        /// The unit was answered: all of it, or its quorum.
        UnitCompleted => "unit.completed",
        /// The unit's deadline woke it.
        UnitTimedOut => "unit.timed_out",
        /// An item failed the unit, or its quorum can no longer be reached.
        UnitFailed => "unit.failed",
        /// The unit was cancelled with its instance.
        UnitCancelled => "unit.cancelled",
        /// A request was sent.
        InteractionDispatched => "interaction.dispatched",
        /// A request was answered.
        InteractionCompleted => "interaction.completed",
        /// A request was answered with a failure, refused by its receiver, or given up.
        InteractionFailed => "interaction.failed",
        /// A request was not answered in time.
        InteractionTimedOut => "interaction.timed_out",
        /// Mail that it sent could not be delivered.
        MailUndelivered => "mail.undelivered",
        /// A sleep, a delayed start or a backoff ended.
        TimerFired => "timer.fired",
        /// A dead worker's claim was taken back.
        Reaped => "reaped",
        /// An operator made an ended instance runnable again.
        Retried => "retried",
        /// It ended with an output.
        Done => "done",
        /// It ended with an error.
        Failed => "failed",
        /// It was ended from outside.
        Cancelled => "cancelled",
    }
}
