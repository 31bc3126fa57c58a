//! Operations as data: whom they mean is a number that is resolved against what is there when they run, so that any
//! part of a sequence is a sequence too.

use std::time::Duration;

use dormouse::jiff::Timestamp;
use dormouse::store::{Hold, SendOutcome, Tried};
use dormouse::{Json, LaneChange, NewInstance, NewSignal, Status, Transition, TransportChange};

/// One call of a verb.
#[derive(Clone, Debug)]
pub enum Op {
    Insert(Vec<New>),
    Deliver(Vec<(Whom, NewSignal)>),
    DropKept {
        namespace: &'static str,
        /// Its place in the list.
        place: usize,
    },
    Claim(Claim),
    Commit(Vec<Outcome>),
    Due {
        rows_max: usize,
    },
    Advance(Duration),
    Register {
        name: &'static str,
        lease: Duration,
    },
    Heartbeat {
        worker: Pick,
        lease: Duration,
    },
    Deregister {
        worker: Pick,
    },
    Reap {
        rows_max: usize,
    },
    Release(Vec<Pick>, Tried),
    Cancel {
        whom: Whom,
        reason: Option<&'static str>,
        seq: Expected,
    },
    Retry {
        whom: Whom,
        at: Option<dormouse::At>,
        seq: Expected,
    },
    Amend {
        whom: Whom,
        signal: Pick,
        payload: Option<Json>,
        seq: Expected,
    },
    Edit {
        whom: Whom,
        state: Json,
        seq: Expected,
    },
    Tag {
        whom: Whom,
        add: Vec<String>,
        remove: Vec<String>,
    },
    Pause(Whom, Expected),
    Resume(Whom, Expected),
    PauseQueue {
        namespace: &'static str,
        queue: &'static str,
    },
    ResumeQueue {
        namespace: &'static str,
        queue: &'static str,
    },
    SetLimit {
        namespace: &'static str,
        name: &'static str,
        limit: Option<dormouse::Limit>,
    },
    Weigh {
        namespace: &'static str,
        share: &'static str,
        weight: u32,
    },
    CollectEnded {
        namespace: Option<&'static str>,
        age: Duration,
        rows_max: usize,
    },
    CollectEvents {
        age: Duration,
        rows_max: usize,
    },
    Complete(Vec<Answer>),
    Outbox {
        namespaces: Option<Vec<&'static str>>,
        rows_max: usize,
        lease: Duration,
    },
    Sent(Vec<(Pick, SendOutcome)>),
    SetTransport(TransportChange),
    /// Results of sends of the breaker's last known epoch, or of the one before.
    Judge {
        is_old: bool,
        responded: bool,
        failures: u32,
    },
    CloseBreaker,
    Assign {
        item: Pick,
        who: &'static str,
        lease: Duration,
    },
    Get(Whom),
    Situation(Whom),
    List(Filter),
    /// Of a namespace or of all.
    Stats(Option<&'static str>),
    Backlog {
        namespace: Option<&'static str>,
    },
}

/// One of those that are there, counted around.
#[derive(Clone, Copy, Debug)]
pub struct Pick(pub usize);

impl Pick {
    pub fn of<'a, T>(&self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.0.checked_rem(all.len())?)
    }
}

/// Whom a verb addresses.
#[derive(Clone, Debug)]
pub enum Whom {
    /// One of the instances there ever were, asked for where it may not be.
    Any(Pick),
    /// One of those that have not ended.
    Live(Pick),
    /// One of those that wait for a signal.
    Waiting(Pick),
    /// One of those that can be retried.
    Ended(Pick),
    Key(&'static str, &'static str),
    Nobody,
}

/// Which `seq` an operator expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Any,
    /// The one that it was last seen at.
    Right,
    /// Another one.
    Wrong,
}

/// An answer to one of the interactions there ever were, or to whoever has a correlation id.
#[derive(Clone, Debug)]
pub struct Answer {
    pub to: Result<Pick, &'static str>,
    pub namespace: Option<&'static str>,
    pub result: Result<Json, String>,
    pub who: Option<&'static str>,
    pub by: Option<&'static str>,
    /// Whether it comes with a resume token, and whether that is still good.
    pub token: Option<bool>,
}

/// An instance to be inserted.
#[derive(Clone, Debug)]
pub struct New {
    pub instance: NewInstance,
    pub forked_from: Option<(Pick, u64)>,
}

#[derive(Clone, Debug)]
pub struct Claim {
    pub worker: Pick,
    pub queue: &'static str,
    pub namespaces: Option<Vec<&'static str>>,
    pub machines: Vec<(&'static str, u32)>,
    pub rows_max: usize,
    /// Whether it goes on where the last claim of its queue stopped.
    pub goes_on: bool,
    pub later_than: Option<i32>,
    pub places: usize,
}

/// What one of the steps under way returns.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub step: Pick,
    pub transition: Transition,
    pub hold: Hold,
    pub lane: Option<LaneChange>,
    pub lifts: bool,
    pub proof: Proof,
}

/// Whether a commit proves its ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    Right,
    WrongSeq,
    /// By another worker than the one that has it.
    WrongWorker,
    /// A step whose claim is over commits once more.
    Late,
}

#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub namespace: Option<&'static str>,
    pub machine: Option<&'static str>,
    pub status: Option<Status>,
    pub queue: Option<&'static str>,
    pub key_prefix: Option<&'static str>,
    pub parent: Option<Pick>,
    pub roots: bool,
    pub tags: Vec<String>,
    pub awaiting: Option<&'static str>,
    pub created_from: Option<Timestamp>,
    pub created_before: Option<Timestamp>,
    pub heads_only: bool,
    pub after: Option<Pick>,
    pub limit: usize,
}
