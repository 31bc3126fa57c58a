//! Instances: one row each, a machine at a step with a state.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::limit::check_cost;
use crate::limits::{InboxMax, Limits, check_name, check_tags, check_version};
use crate::machine::{decode_at, encode_at};
use crate::words::words;
use crate::{
    Error, History, Job, JobMachine, JobState, Json, KeyScope, Machine, NewSignal, Result, Trace, When,
};

/// The default namespace.
pub const DEFAULT_NAMESPACE: &str = "default";

/// An instance's id: unique in the database, across namespaces, and never reused. Only a client in the instance's
/// namespace finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(pub i64);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

words! {
    /// Where an instance is in its life.
    Status: "status of an instance" {
        /// Can run now.
        Runnable => "runnable",
        /// Claimed by a worker.
        Executing => "executing",
        /// Parked on the clock alone: a delayed start, a sleep, a retry's backoff.
        Scheduled => "scheduled",
        /// Parked on a set of signal names.
        AwaitingSignal => "awaiting_signal",
        /// Parked on the barrier of its children.
        AwaitingChildren => "awaiting_children",
        /// Parked on an await unit.
        AwaitingCompletion => "awaiting_completion",
        /// Ended with an output.
        Done => "done",
        /// Ended with an error.
        Failed => "failed",
        /// Ended from outside.
        Cancelled => "cancelled",
    }
}

impl Status {
    /// Whether it is parked or has ended: it neither runs nor could.
    pub const fn is_settled(self) -> bool {
        !matches!(self, Self::Runnable | Self::Executing)
    }

    /// Whether nothing more will happen to the instance by itself.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

words! {
    /// Why a step runs that was parked before.
    #[non_exhaustive]
    Wake: "reason to wake" {
        /// An awaited signal arrived.
        Signal => "signal",
        /// The deadline of an await, a barrier or a unit passed.
        Timeout => "timeout",
        /// The barrier of its children was released.
        Children => "children",
        /// Its await unit was closed.
        Unit => "unit",
        /// A sleep, a delayed start or a backoff is over.
        Clock => "clock",
    }
}

/// A place in a machine: the step, and the state that the step needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    /// The step's name.
    pub step: Cow<'static, str>,
    /// The step's state.
    pub state: Json,
}

impl At {
    /// A place of a machine.
    pub fn of<M: Machine>(state: &M::State) -> Result<Self> {
        encode_at(state)
    }
}

/// An instance to be inserted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewInstance {
    /// Its namespace.
    pub namespace: String,
    /// Its machine's name.
    pub machine: String,
    /// Its machine's version.
    pub version: u32,
    /// Where it starts.
    pub at: At,
    /// The queue it waits in when runnable.
    pub queue: String,
    /// Lower runs earlier.
    pub priority: i32,
    /// Its business identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When that key counts as taken.
    #[serde(default, skip_serializing_if = "KeyScope::is_default")]
    pub key_scope: KeyScope,
    /// The lane its steps run in, one at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// The share whose turns it is served in; `None` is its namespace's own, or for a child its parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// The trace it is part of, as [`Trace`] writes it; checked when it is inserted. `None` for a child is its parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// How many starts each of its steps counts as, in a lane with a rate.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub cost: u32,
    /// When it may first run; `None` is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<When>,
    /// What it is parked on from the start: signal names, and perhaps a deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<(Vec<String>, Option<When>)>,
    /// Whether its transitions are recorded; `None` is the engine's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// Signals for its inbox, stored in the same commit (or for the holder of its key).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<NewSignal>,
    /// Words that it can be found by: up to 8, of up to 64 bytes each. Its children do not inherit them.
    pub tags: Vec<String>,
    /// The event it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<(InstanceId, u64)>,
    /// The instance whose mail starts it, and the event that sent the mail.
    #[serde(skip)]
    pub(crate) sent_by: Option<(InstanceId, u64)>,
    /// Whether to start it even if nobody declares its machine. A typed start needs no declaration.
    pub even_if_unknown: bool,
    /// Whether its state was given in its type, and so need not be checked.
    #[serde(skip)]
    pub(crate) is_typed: bool,
    /// Why its state could not be encoded; reported when it is inserted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) invalid: Option<String>,
    /// How much the inbox may hold that gets its signals.
    #[serde(skip)]
    pub(crate) inbox_max: InboxMax,
}

impl NewInstance {
    /// An instance of a machine, in that machine's queue.
    ///
    /// If its state cannot be encoded, the insert reports that.
    pub fn of<M: Machine>(state: M::State) -> Self {
        let (at, invalid) = match encode_at(&state) {
            Ok(at) => (at, None),
            Err(Error::InvalidState(reason)) => (At { step: "".into(), state: Json::null() }, Some(reason)),
            Err(error) => (At { step: "".into(), state: Json::null() }, Some(error.to_string())),
        };
        let named = Self::named(M::NAME, M::VERSION, at);
        Self {
            queue: M::QUEUE.to_owned(),
            history: M::HISTORY,
            even_if_unknown: true,
            is_typed: true,
            invalid,
            ..named
        }
    }

    /// An instance of a job.
    pub fn job<J: Job>(input: J::Input) -> Self {
        Self::of::<JobMachine<J>>(JobState::Run(input))
    }

    /// An instance of a machine known only by name, in the queue `default`. A client starts it only if some worker has
    /// declared that name; see [`NewInstance::even_if_unknown`].
    pub fn named(machine: impl Into<String>, version: u32, at: At) -> Self {
        Self {
            namespace: DEFAULT_NAMESPACE.to_owned(),
            machine: machine.into(),
            version,
            at,
            queue: "default".to_owned(),
            priority: 0,
            key: None,
            key_scope: KeyScope::Live,
            lane: None,
            share: None,
            trace: None,
            cost: 1,
            start_at: None,
            awaits: None,
            history: None,
            signals: Vec::new(),
            tags: Vec::new(),
            forked_from: None,
            sent_by: None,
            even_if_unknown: false,
            is_typed: false,
            invalid: None,
            inbox_max: InboxMax::default(),
        }
    }

    /// Sets its key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets when its key counts as taken.
    #[must_use]
    pub fn key_scope(mut self, scope: KeyScope) -> Self {
        self.key_scope = scope;
        self
    }

    /// Sets its queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Sets its priority; lower runs earlier.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets its lane: the steps of a lane run one at a time, in order.
    #[must_use]
    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.lane = Some(lane.into());
        self
    }

    /// Sets its share: work of one queue and priority is served by turns of its shares. Without one, it is in its
    /// namespace's own share, or a child in its parent's.
    #[must_use]
    pub fn share(mut self, share: impl Into<String>) -> Self {
        self.share = Some(share.into());
        self
    }

    /// Makes it part of a trace, given as in the header `traceparent`: its steps, children and requests are in it too.
    #[must_use]
    pub fn trace(mut self, trace: impl Into<String>) -> Self {
        self.trace = Some(trace.into());
        self
    }

    /// Sets how many starts each of its steps counts as, in a lane with a rate; without it, one. It may be no more than the
    /// burst of that rate.
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    /// Sets when it may first run.
    #[must_use]
    pub fn start_at(mut self, when: impl Into<When>) -> Self {
        self.start_at = Some(when.into());
        self
    }

    /// Starts it even if no worker has ever declared its machine: it waits until one does.
    #[must_use]
    pub fn even_if_unknown(mut self) -> Self {
        self.even_if_unknown = true;
        self
    }

    /// Puts a signal in its inbox, in the same commit.
    #[must_use]
    pub fn signal(mut self, signal: NewSignal) -> Self {
        self.signals.push(signal);
        self
    }

    /// Adds a tag to find it by.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    pub(crate) fn check(&self, limits: &Limits) -> Result<()> {
        if let Some(reason) = &self.invalid {
            return Err(Error::InvalidState(reason.clone()));
        }
        check_name("namespace", &self.namespace)?;
        check_name("machine name", &self.machine)?;
        check_version(self.version).map_err(Error::InvalidState)?;
        check_name("step name", &self.at.step)?;
        check_name("queue", &self.queue)?;
        if let Some(key) = &self.key {
            check_name("key", key)?;
        }
        if let Some(lane) = &self.lane {
            check_name("lane", lane)?;
        }
        if let Some(share) = &self.share {
            check_name("share", share)?;
        }
        if let Some(trace) = &self.trace {
            trace.parse::<Trace>()?;
        }
        check_cost(self.cost)?;
        check_tags(&self.tags)?;
        limits.check_document("state", &self.at.state)?;
        if let Some((names, _)) = &self.awaits {
            if names.is_empty() {
                return Err(Error::InvalidState("it awaits no signals; name at least one".to_owned()));
            }
            names.iter().try_for_each(|name| check_name("signal name", name))?;
        }
        limits.check_signals(&self.signals)
    }
}

fn one() -> u32 {
    1
}

fn is_one(cost: &u32) -> bool {
    *cost == 1
}

/// The result of inserting an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It was inserted.
    New(InstanceId),
    /// Its key is taken: nothing was inserted; its signals, if any, went to the holder.
    Taken {
        /// The instance that holds the key.
        holder: InstanceId,
        /// The result of each signal.
        signals: Vec<crate::Delivered>,
    },
}

impl Inserted {
    /// The instance that now holds the key: the new one, or the one that was there.
    pub fn id(&self) -> InstanceId {
        match self {
            Self::New(id) => *id,
            Self::Taken { holder, .. } => *holder,
        }
    }
}

/// An instance as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// Its id.
    pub id: InstanceId,
    /// Its namespace.
    pub namespace: String,
    /// Its machine's name.
    pub machine: String,
    /// Its machine's version.
    pub version: u32,
    /// Its key.
    pub key: Option<String>,
    /// Its status.
    pub status: Status,
    /// Its step.
    pub step: String,
    /// Its state.
    pub state: Json,
    /// How many transitions were committed.
    pub seq: u64,
    /// Tries of the current step so far.
    pub attempt: u32,
    /// Its queue.
    pub queue: String,
    /// Its priority; lower runs earlier.
    pub priority: i32,
    /// Its lane.
    pub lane: Option<String>,
    /// Its share, if that is not its namespace's own.
    pub share: Option<String>,
    /// The trace it is part of.
    pub trace: Option<Trace>,
    /// How many starts each of its steps counts as, in a lane with a rate.
    pub cost: u32,
    /// Whether it waits for its lane.
    pub lane_blocked: bool,
    /// Whether the brake is on.
    pub paused: bool,
    /// Whether it will be cancelled when its running step ends.
    pub cancel_requested: bool,
    /// Why it was cancelled, or will be when its running step ends.
    pub cancel_reason: Option<String>,
    /// The ancestor with which it was cancelled.
    pub cancelled_with: Option<InstanceId>,
    /// The names it is parked on, or was woken by and has not consumed.
    pub awaits: Vec<String>,
    /// The moment the clock alone makes it runnable.
    pub wake_at: Option<Timestamp>,
    /// Why it was last woken.
    pub wake: Option<Wake>,
    /// How many signals wait in its inbox.
    pub inbox: u32,
    /// How many ends of children, or answers to its unit, its barrier still waits for.
    pub barrier: Option<u32>,
    /// How many times it has spawned or dispatched.
    pub round: u32,
    /// Its tags, in order.
    pub tags: Vec<String>,
    /// Its parent.
    pub parent: Option<InstanceId>,
    /// Which of its parent's rounds it belongs to.
    pub parent_round: Option<u32>,
    /// Its index in the list that its parent spawned, from 0.
    pub parent_index: Option<u32>,
    /// The worker that holds it.
    pub worker: Option<WorkerId>,
    /// Its output, if it is done.
    pub output: Option<Json>,
    /// The last error, of a retried step or of its end.
    pub last_error: Option<String>,
    /// When it was inserted.
    pub created_at: Timestamp,
    /// When it last moved.
    pub changed_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

impl Instance {
    /// Its step and state as the machine's own enum.
    pub fn state_as<M: Machine>(&self) -> Result<M::State> {
        let at = At { step: self.step.clone().into(), state: self.state.clone() };
        decode_at(&at).map_err(|reason| Error::Decode { what: "state", reason })
    }
}

/// A registered worker's id; a process that registers again gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(pub i64);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
