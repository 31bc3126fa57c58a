#![doc = include_str!("store/contract.md")]

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

mod access;
mod declared;
#[cfg(test)]
mod json;
mod limits;
pub(crate) mod mail;
mod operate;
mod progress;
mod query;
mod reading;
mod search;
mod shown;
mod transports;
mod units;
mod worker;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::access::{
    Admission, Answer, ApiKey, Audit, AuditFilter, Change, Changes, NewApiKey, NewAudit, Repeatable, Scope,
    ServerStore,
};
pub use self::declared::{Declarations, Declared};
pub use self::limits::{
    LANES_COUNTED_MAX, LaneView, LimitStore, LimitView, STARTS_AHEAD_MAX, Starts, WAITING_COUNTED_MAX,
};
pub use self::mail::{
    DueMail, KeptCount, KeptFilter, MailBounds, MailDue, MailStore, MailView, Post, Posted, Posting,
};
pub use self::operate::{Amend, AmendRequest, Brake, Cancel, CancelRequest, Collect, Collected, TagChange};
pub(crate) use self::progress::PROGRESS_QUEUE;
pub use self::progress::{NewProgress, Progress, Reports};
pub use self::query::{
    AWAITING_MAX, About, Addressee, Awaited, Backlog, Bounds, Count, Events, Filter, PAGE_BYTES_MAX,
    PLACES_MAX, Page, Portion, Queries, QueueDepth, QueueView, Situation, Stats, WorkerView,
};
pub(crate) use self::query::{QUEUES_MAX, counted};
pub(crate) use self::reading::READ_WITH_CLAIM_MAX;
pub use self::reading::Reading;
pub(crate) use self::search::{Candidates, FieldIndex, Source, is_indexed, sources, status_words};
pub use self::shown::shown;
pub use self::transports::{
    BreakerStatus, BreakerView, Gate, Held, Judged, SendTally, TransportStore, TransportView,
};
pub(crate) use self::transports::{StoredTransport, gate_queue};
pub(crate) use self::units::outbox_queue;
pub use self::units::{
    Assigned, Completed, Completion, FailingSend, InteractionCount, InteractionFilter, OUTBOX_MAX, Outbox,
    OutboxDepth, Proof, Refusal, SendOutcome, SendReport, UnitStore, Which,
};
pub use self::worker::{Lease, NewWorker, Tried};
pub use crate::context::Rider;
use crate::poke::Hub;
pub use crate::poke::{Effects, Written};
pub use crate::rules::Hold;
use crate::rules::{Handed, Head};
pub use crate::search::{
    CONDITIONS_MAX, Compare, Condition, INDEXED_CHARS_MAX, INDEXES_MAX, LOOKED_MAX, Literal, Looked,
};
pub use crate::share::{Turn, Turns, share_id, share_name};
use crate::{
    At, ChildView, Delivered, Error, InboxMax, InboxSignal, Inserted, InstanceId, Json, KeptMax, KeyScope,
    LaneChange, Mail, NewInstance, NewSignal, ParentRef, Result, Run, SignalId, Status, Target, Trace,
    Transition, Wake, When, WorkerId,
};

/// A store's answer.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The verbs of the engine: everything that moves an instance. Which rules they keep is in the
/// [module's documentation](self).
///
/// Verbs that take a namespace and a [`Target`] are a caller's: an id of another namespace is as unknown as one that
/// never was. Verbs that take a bare id, or a worker, are the engine's, which serves many namespaces.
pub trait Store:
    UnitStore + TransportStore + LimitStore + MailStore + Queries + Send + Sync + 'static
{
    // Time and hints.

    /// This process's end of the store's pokes: one [`Hub::default`], made when the store is opened.
    fn hub(&self) -> &Hub;

    /// Passes on what a write made possible, to this process and to others. Callers do this after each write, and a
    /// poke may be lost: then a poll finds the work later. Without an override, other processes rely on their polls.
    fn poke(&self, effects: &Effects) {
        self.hub().apply(effects);
    }

    /// Resolves at this moment of the store's time, or after this much of it. The store's time decides, not the clock of
    /// this process: they may differ.
    fn sleep(&self, until: When) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    // What callers hand in.

    /// Inserts instances with their signals, and answers for each, in order. A key that is taken, by a row or by an
    /// earlier entry of the batch, inserts nothing: it is [`Inserted::Taken`], and its signals go to the holder.
    ///
    /// Each new instance has `seq` 1 and the event `created`. It is runnable, scheduled if it starts later, or awaiting
    /// its signals, of which one that came along wakes it. Effects: the queues of what is runnable, the nearest `wake_at`.
    fn insert(&self, batch: Vec<NewInstance>) -> Reply<'_, Written<Vec<Inserted>>>;

    /// Puts signals into inboxes, and answers for each, in order. A target that is unknown or has ended stores nothing.
    /// A dedup key that the instance has seen stores nothing, also after its signal was consumed.
    ///
    /// A signal with [`NewSignal::keep_for`] to a key that no live instance has is kept instead, unless an ended one holds
    /// the key. The instance that starts with the key, or is retried, has it in its inbox, before any signal that came
    /// later; a start and a signal that meet never lose it, nor deliver it twice. Effects: `wake_at`, when it expires.
    ///
    /// Storing the signal and waking an instance that is parked on its name are one transaction, under the lock that
    /// parking takes. That is what keeps a wake-up from being lost. Effects: the queues of those woken.
    fn deliver(&self, batch: Vec<Delivery>) -> Reply<'_, Written<Vec<Delivered>>>;

    // Claim, run, commit.

    /// Takes up to `rows_max` runnable rows for a worker, by priority. Within a priority, shares take turns, in the order of
    /// their ids, from where [`Claim::after`] stopped; in each of its turns a share is served as many rows as it weighs, by
    /// when they became runnable. Each row goes to one worker, which must hold its lease; a worker without one gets none.
    ///
    /// Not claimed: paused rows, rows of paused queues, rows behind a lane's holder, rows of machines or versions that the
    /// claim does not name. They should cost the claim nothing.
    fn claim(&self, claim: Claim) -> Reply<'_, Written<Vec<Claimed>>>;

    /// Reads the inbox and the children of a claimed row whose [`Claimed::is_apart`] is set. If they have more bytes than
    /// this, it is [`Error::TooMuchToRead`].
    fn reading(&self, id: InstanceId, bytes_max: usize) -> Reply<'_, Reading>;

    /// Commits outcomes, and answers each with a receipt, in order.
    ///
    /// Each is guarded by worker and `seq`: where one of them does not match, it is [`Receipt::Stale`] and nothing
    /// changes. If two are of one instance, the first makes the second stale. A row that another transaction
    /// holds is [`Receipt::Busy`], and holds up none of the others. A row whose cancel was requested ends as
    /// cancelled, whatever the outcome: [`Receipt::Cancelled`].
    ///
    /// One transaction holds the new row, its event, the consumed signals, the children or the unit it opens, its mail, what
    /// its end takes off its parent's barrier, and the next holder of its lane. An error means that nothing of the batch was
    /// committed, unless it is [`Error::Busy`]: then it may have been.
    fn commit(&self, worker: WorkerId, batch: Arc<[Commit]>) -> Reply<'_, Written<Vec<Receipt>>>;

    /// How many groups of outcomes are worth committing at a time: one, unless the store writes several at once.
    fn groups_max(&self) -> usize {
        1
    }

    // A step's own writes, which a store may leave out.

    /// Opens a transaction for a step's own writes. It rides with the outcome ([`Store::commit_with`]), or is dropped and
    /// then rolled back.
    fn begin(&self) -> Reply<'_, Rider> {
        Box::pin(async { Err(NO_OWN_WRITES) })
    }

    /// Whether [`Store::commit_with`] runs closures inside the commit, as a store with one writer can.
    fn runs_closures(&self) -> bool {
        false
    }

    /// Commits one outcome as [`Store::commit`] does, together with its step's own writes: both or neither. Writes that
    /// fail are [`Error::OwnWrites`]. After any other error neither is committed, and the claim stays.
    fn commit_with(&self, worker: WorkerId, commit: Commit, rider: Rider) -> Reply<'_, Written<Receipt>> {
        let _ = (worker, commit, rider);
        Box::pin(async { Err(NO_OWN_WRITES) })
    }

    // The clock and the leases.

    /// Wakes up to `rows_max` rows whose `wake_at` has come, closes what is late of units, and removes up to `rows_max` kept
    /// signals that have expired. Answers with the next moment, so that nobody polls for it. Waking does not touch `attempt`.
    fn due(&self, rows_max: usize) -> Reply<'_, Written<Due>>;

    /// Registers a worker, stores what it declares, and ends the lease of an earlier worker of that name or of a process
    /// on this host that is gone. Ids of workers are never used again.
    fn register(&self, worker: NewWorker) -> Reply<'_, WorkerId>;

    /// Renews a worker's lease and lists its claims, or answers [`Lease::Lost`] if the lease is over. A lost lease
    /// never comes back: the worker registers again.
    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> Reply<'_, Lease>;

    /// Ends a worker's lease, so that its remaining claims can be reaped at once.
    fn deregister(&self, worker: WorkerId) -> Reply<'_, ()>;

    /// Gives back claims of a worker, each named by its instance and the `seq` at which it was claimed. A claim whose
    /// instance has moved on is left alone. Returns those that another transaction keeps busy, which the worker still
    /// holds.
    fn release(
        &self,
        worker: WorkerId,
        claims: Vec<(InstanceId, u64)>,
        tried: Tried,
    ) -> Reply<'_, Written<Vec<InstanceId>>>;

    /// Takes back up to `rows_max` claims of workers whose lease is over: each row is runnable again in its old place,
    /// with `attempt` one higher. A row with a requested cancel ends as cancelled. One whose step was lost in this way
    /// `crashes_max` times in a row, with no commit between, fails.
    fn reap(&self, rows_max: usize, crashes_max: u32) -> Reply<'_, Written<usize>>;

    /// Stores what running steps of this worker report. A report of a run that is over is dropped. Reports are hints:
    /// without an override they are all dropped.
    fn report(&self, worker: WorkerId, batch: Vec<NewProgress>) -> Reply<'_, Written<()>> {
        let _ = (worker, batch);
        Box::pin(async { Ok(Written::default()) })
    }

    /// Removes up to `rows_max` ended instances and old events, and answers how many rows went.
    fn collect(&self, collect: Collect) -> Reply<'_, Collected>;

    // What operators do. None of them waits for a step that runs.

    /// Cancels an instance and, downwards, its live children. One whose step runs is marked and ends with that step; its
    /// worker hears of it by the effects, or at its next heartbeat.
    fn cancel(&self, namespace: String, target: Target, request: CancelRequest)
    -> Reply<'_, Written<Cancel>>;

    /// Makes an ended instance runnable again, at its step or elsewhere. With an expected `seq`, an instance at another
    /// one is left alone: [`Error::StaleSeq`].
    fn retry(
        &self,
        namespace: String,
        target: Target,
        at: Option<At>,
        expected_seq: Option<u64>,
    ) -> Reply<'_, Written<InstanceId>>;

    /// Puts an instance's brake on or off, with an expected `seq` as [`Store::retry`] has it. A paused instance keeps its
    /// status, takes signals, and is not claimed.
    fn pause(
        &self,
        namespace: String,
        target: Target,
        brake: Brake,
        expected_seq: Option<u64>,
    ) -> Reply<'_, Written<InstanceId>>;

    /// Drops or edits a signal in the inbox of an instance whose step does not run, live or ended. An instance parked on
    /// an edited signal is woken by it; one that only a dropped signal had woken waits again.
    fn amend(
        &self,
        namespace: String,
        target: Target,
        request: AmendRequest,
    ) -> Reply<'_, Written<InstanceId>>;

    /// Replaces the state of an instance whose step does not run and that is not done. It stays where it is: parked,
    /// runnable, or ended with its failure.
    fn edit(
        &self,
        namespace: String,
        target: Target,
        state: Json,
        expected_seq: Option<u64>,
    ) -> Reply<'_, InstanceId>;

    /// Adds and removes an instance's tags, and returns those that it has then. Not a transition.
    fn tag(&self, namespace: String, target: Target, change: TagChange) -> Reply<'_, Vec<String>>;

    /// Puts a queue's brake on or off.
    fn pause_queue(&self, namespace: String, queue: String, brake: Brake) -> Reply<'_, Written<()>>;

    /// Sets the weight of a share by its name in a namespace; the namespace's own share has the namespace's name. It counts
    /// from the next claim on. A weight of 1 is what every share has, and need not be stored.
    fn weigh(&self, namespace: String, share: String, weight: u32) -> Reply<'_, ()>;

    /// This store as one that a server can work on; `None` from a store that leaves [`ServerStore`] out.
    fn server(self: Arc<Self>) -> Option<Arc<dyn ServerStore>> {
        None
    }
}

/// The error of a store that does not implement [`Store::begin`] and [`Store::commit_with`].
const NO_OWN_WRITES: Error = Error::WrongStore {
    asked_for: "step's own writes",
    instead: "this store commits outcomes only; write elsewhere, and use `cx.seq()` to make that idempotent",
};

/// A signal and whom it is for.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The namespace in which the target is looked up.
    pub namespace: String,
    /// The instance.
    pub target: Target,
    /// The signal.
    pub signal: NewSignal,
    /// How much the inbox may hold that it goes to.
    pub inbox_max: InboxMax,
    /// How much may be kept in the namespace, if it is to be kept.
    pub kept_max: KeptMax,
}

/// Which namespaces a worker serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// Every one.
    All,
    /// Just these.
    Only(Vec<String>),
}

impl Namespaces {
    /// Whether this namespace is one of them.
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|name| name == namespace),
        }
    }
}

/// A request for rows to claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The worker.
    pub worker: WorkerId,
    /// The queue.
    pub queue: String,
    /// The namespaces it serves.
    pub namespaces: Namespaces,
    /// The machines and versions it runs.
    pub machines: Arc<[(String, u32)]>,
    /// The last turns that this worker served in this queue.
    pub after: Turns,
    /// Only rows of priorities after this one.
    pub later_than: Option<i32>,
    /// At most this many rows.
    pub rows_max: usize,
    /// How many of the first rows would start at once. In a lane with a rate a row is only handed out to start at once,
    /// unless there is enough in its bucket to start it a little later.
    pub places: usize,
}

/// A row in a worker's hands, with everything its step may ask for. Its JSON form has these names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claimed {
    /// The instance.
    pub id: InstanceId,
    /// Its namespace.
    pub namespace: String,
    /// Its key.
    pub key: Option<String>,
    /// Its parent, and its place among its siblings.
    pub parent: Option<ParentRef>,
    /// Its machine.
    pub machine: String,
    /// Its machine's version.
    pub version: u32,
    /// Where it is.
    pub at: At,
    /// Its transitions so far: what its commit must find unchanged.
    pub seq: u64,
    /// Tries of this step so far.
    pub attempt: u32,
    /// Why it woke.
    pub wake: Option<Wake>,
    /// The names that count as received.
    pub awaits: Vec<String>,
    /// Its inbox.
    pub inbox: Vec<InboxSignal>,
    /// The children of the round it was parked on.
    pub children: Vec<ChildView>,
    /// Whether inbox and children are too large to come with a claim, and are to be read with [`Store::reading`].
    pub is_apart: bool,
    /// Whether its transitions are recorded.
    pub keeps_history: bool,
    /// Its lane.
    pub lane: Option<String>,
    /// The turn it was served in.
    pub turn: Turn,
    /// What it was parked on: ends or answers that are still to come.
    pub barrier: Option<u32>,
    /// How often it has spawned or dispatched.
    pub round: u32,
    /// When its key counts as taken.
    pub key_scope: KeyScope,
    /// Since when it could run.
    pub runnable_at: Timestamp,
    /// The trace it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// When its step may start.
    #[serde(default)]
    pub starts: Starts,
    /// The store's time.
    pub now: Timestamp,
}

/// An outcome to be committed. Its JSON form has these names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// The row as it was handed out: its `seq` must be found unchanged. A store that cannot decide under its own lock goes by
    /// this head, and decides again if the row has moved.
    pub head: Head,
    /// The version of the place the transition leads to: the claimed one, unless a migration lifted it.
    pub version: u32,
    /// The signals that the step was handed as received.
    pub received: Vec<SignalId>,
    /// What the step returned.
    pub transition: Transition,
    /// Whether a `next` keeps the claim to run ahead.
    pub hold: Hold,
    /// The run that gave it, to be recorded with it.
    pub run: Option<Run>,
    /// The facts of the handed inbox that the outcome depends on.
    pub handed: Handed,
    /// Where it puts the instance; `None` leaves it in its lane. With it, a `next` gives the claim back.
    #[serde(default)]
    pub lane: Option<LaneChange>,
    /// What it sends to other instances, stored in the same commit.
    #[serde(default)]
    pub mail: Vec<Mail>,
}

impl Commit {
    /// The outcome of a claimed row's step, which received these signals. It gives the claim back.
    pub fn new(claimed: &Claimed, received: Vec<SignalId>, transition: Transition) -> Self {
        let handed = Handed::of(&claimed.inbox, &transition, &received);
        let (head, version, hold) = (claimed.head(), claimed.version, Hold::Release);
        let (lane, mail) = (None, Vec::new());
        Self { head, version, received, transition, hold, run: None, handed, lane, mail }
    }
}

impl Claimed {
    /// The head by which the rules decide an outcome. Names that they do not use are left empty.
    pub fn head(&self) -> Head {
        Head {
            status: Status::Executing,
            namespace: String::new(),
            queue: String::new(),
            seq: self.seq,
            attempt: self.attempt,
            wake: self.wake,
            awaits: self.awaits.clone(),
            inbox: self.inbox.len() as u32,
            barrier: self.barrier,
            round: self.round,
            parent: self.parent.map(|parent| (parent.id, parent.round)),
            lane: self.lane.clone(),
            key_scope: self.key_scope.clone(),
            keeps_history: self.keeps_history,
            ..Head::new(self.id, "", self.version, &self.at.step)
        }
    }
}

/// The result of a commit. In JSON it is a word, or for a claim that is kept an object: `{"held": {…}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receipt {
    /// Committed, and still claimed: run on.
    Held {
        /// The new `seq`.
        seq: u64,
        /// The inbox as it is now.
        inbox: Vec<InboxSignal>,
        /// The store's time.
        now: Timestamp,
    },
    /// Committed, the claim is over.
    Released,
    /// The instance had been cancelled: the outcome was discarded for that.
    Cancelled,
    /// The claim was lost before: nothing changed.
    Stale,
    /// Another transaction holds the row: nothing changed, commit it again in a moment.
    Busy,
}

/// The result of waking rows that are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Rows woken.
    pub woken: usize,
    /// Kept signals that have expired.
    pub expired: usize,
    /// The next moment, in the store's time.
    pub next: Option<Timestamp>,
}
