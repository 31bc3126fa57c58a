//! The store: every verb of the engine, in batches, with no driver type in sight.
//!
//! A store owns atomicity. Each write is one transaction: all of it or nothing. What may be lost after
//! the commit (pokes) comes back as [`Effects`], data that the caller applies.

#[cfg(feature = "postgres")]
pub mod postgres;
pub mod sqlite;

mod access;
mod declared;
mod open;
mod operate;
mod progress;
mod query;
mod reading;
mod rider;
mod shown;
mod units;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

pub use self::access::{
    AWAITING_MAX, About, Admission, Answer, ApiKey, Audit, AuditFilter, Awaited, Backlog, Change, Changes,
    NewApiKey, NewAudit, QueueDepth, Repeatable, Scope,
};
pub use self::declared::{Declarations, Declared};
pub(crate) use self::open::open;
pub use self::operate::{Amend, AmendRequest, Brake, Cancel, CancelRequest, Collect, Collected, TagChange};
pub(crate) use self::progress::PROGRESS_QUEUE;
pub use self::progress::{NewProgress, Progress, Reports};
pub(crate) use self::query::QUEUES_MAX;
pub use self::query::{
    Addressee, Bounds, Count, Events, Filter, PAGE_BYTES_MAX, PLACES_MAX, Page, Portion, QueueView,
    Situation, Stats, WorkerView,
};
pub(crate) use self::reading::READ_WITH_CLAIM_MAX;
pub use self::reading::Reading;
pub use self::rider::Rider;
pub use self::shown::shown;
pub(crate) use self::units::outbox_queue;
pub use self::units::{
    Assigned, Completed, Completion, InteractionCount, InteractionFilter, Outbox, Proof, Refusal,
    SendOutcome, SendReport, UnitStore, Which,
};
use crate::poke::Hub;
pub use crate::rules::Hold;
use crate::rules::{Handed, Head};
use crate::{
    At, ChildView, Declaration, Delivered, Event, InboxMax, InboxSignal, Inserted, Instance, InstanceId,
    KeyScope, NewInstance, NewSignal, ParentRef, Process, Result, Run, SignalId, Status, Target, Transition,
    Wake, When, WorkerId,
};

/// A store's answer.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Where instances, signals and history live.
///
/// A verb that takes a namespace and a [`Target`] finds only what is in that namespace: an id of another one is
/// as unknown as an id that never was. Verbs that take a bare id are the engine's, which serves many.
pub trait Store: UnitStore + Send + Sync + 'static {
    /// The in-process end of this store's pokes.
    fn hub(&self) -> &Hub;

    /// Tells whoever listens, here and elsewhere, what a write made possible. May be lost.
    fn poke(&self, effects: &Effects);

    /// Resolves at this moment of the store's time, or this much of it from now.
    fn sleep(&self, until: When) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Inserts instances, each with its signals, and says for each what became of it.
    fn insert(&self, batch: Vec<NewInstance>) -> Reply<'_, Written<Vec<Inserted>>>;

    /// Delivers signals and says for each what became of it.
    fn deliver(&self, batch: Vec<Delivery>) -> Reply<'_, Written<Vec<Delivered>>>;

    /// Takes runnable rows for a worker, by priority, then time.
    fn claim(&self, claim: Claim) -> Reply<'_, Written<Vec<Claimed>>>;

    /// What the step of a claimed row is handed besides its state. If inbox or children are larger than this it is
    /// [`crate::Error::TooMuchToRead`].
    fn reading(&self, id: InstanceId, bytes_max: usize) -> Reply<'_, Reading>;

    /// How many groups of outcomes it is worth committing at a time.
    fn groups_max(&self) -> usize {
        1
    }

    /// Commits outcomes, each guarded by worker and `seq`, with a receipt each. If two are of one instance, the first
    /// makes the second stale.
    fn commit(&self, worker: WorkerId, batch: Arc<[Commit]>) -> Reply<'_, Written<Vec<Receipt>>>;

    /// Opens a transaction for a step's own writes, where a store can keep one open beside its others.
    fn begin(&self) -> Reply<'_, Rider>;

    /// Whether [`Store::commit_with`] takes closures that it runs inside the commit, as one writer can.
    fn runs_closures(&self) -> bool {
        false
    }

    /// Commits one outcome together with its step's own writes. If those fail it is [`crate::Error::OwnWrites`]; after
    /// any other error neither is committed, and the claim stays.
    fn commit_with(&self, worker: WorkerId, commit: Commit, rider: Rider) -> Reply<'_, Written<Receipt>>;

    /// Wakes up to `rows_max` rows whose moment has come.
    fn due(&self, rows_max: usize) -> Reply<'_, Written<Due>>;

    /// Registers a worker, and ends the lease of an earlier one of that name or of a dead process here.
    fn register(&self, worker: NewWorker) -> Reply<'_, WorkerId>;

    /// What workers declared of the machines they run, whether or not they still live; `None` if that is as it was at
    /// this mark.
    fn declared(&self, known: Option<String>) -> Reply<'_, Option<Declarations>>;

    /// Renews a worker's lease.
    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> Reply<'_, Lease>;

    /// Ends a worker's lease, so that what it still holds can be reaped at once.
    fn deregister(&self, worker: WorkerId) -> Reply<'_, ()>;

    /// Notes what steps that this worker runs report. What is no longer run as it was is left out.
    fn report(&self, worker: WorkerId, batch: Vec<NewProgress>) -> Reply<'_, Written<()>>;

    /// What steps that run have reported last, up to `rows_max`.
    fn reports(&self, which: Reports, rows_max: usize) -> Reply<'_, Vec<Progress>>;

    /// Gives back these of a worker's claims, each an instance and the `seq` at which it is claimed, which nobody
    /// runs. Returns those that it still holds, as somebody else's transaction keeps them busy. Claims that their
    /// instances have moved on from are left alone.
    fn release(
        &self,
        worker: WorkerId,
        claims: Vec<(InstanceId, u64)>,
        tried: Tried,
    ) -> Reply<'_, Written<Vec<InstanceId>>>;

    /// Takes back up to `rows_max` claims of workers whose lease is over. An instance whose step was lost in this way
    /// `crashes_max` times in a row, with no commit between them, has failed.
    fn reap(&self, rows_max: usize, crashes_max: u32) -> Reply<'_, Written<usize>>;

    /// Removes up to `rows_max` ended instances, and old events, and says how many rows went.
    fn collect(&self, collect: Collect) -> Reply<'_, Collected>;

    /// Cancels an instance, at once or when its running step ends.
    fn cancel(&self, namespace: String, target: Target, request: CancelRequest)
    -> Reply<'_, Written<Cancel>>;

    /// Makes an ended instance runnable again, at its step or elsewhere. With an expected `seq`, an instance that is at
    /// another one is left alone: [`crate::Error::StaleSeq`].
    fn retry(
        &self,
        namespace: String,
        target: Target,
        at: Option<At>,
        expected_seq: Option<u64>,
    ) -> Reply<'_, Written<InstanceId>>;

    /// Puts an instance's brake on or off, perhaps only if it is at this `seq`.
    fn pause(
        &self,
        namespace: String,
        target: Target,
        brake: Brake,
        expected_seq: Option<u64>,
    ) -> Reply<'_, Written<InstanceId>>;

    /// Drops or edits a signal in the inbox of an instance whose step does not run, live or put away with its end. An
    /// instance that is parked on an edited signal is woken by it; one that was woken by a dropped one alone waits again.
    fn amend(
        &self,
        namespace: String,
        target: Target,
        request: AmendRequest,
    ) -> Reply<'_, Written<InstanceId>>;

    /// Adds and removes an instance's tags, and gives those that it has then. Not a transition.
    fn tag(&self, namespace: String, target: Target, change: TagChange) -> Reply<'_, Vec<String>>;

    /// Puts a queue's brake on or off.
    fn pause_queue(&self, namespace: String, queue: String, brake: Brake) -> Reply<'_, Written<()>>;

    /// One instance.
    fn get(&self, namespace: String, target: Target) -> Reply<'_, Option<Instance>>;

    /// Whose instances these targets are, in order; `None` for one that is not there.
    fn addressees(&self, namespace: String, targets: Vec<Target>) -> Reply<'_, Vec<Option<Addressee>>>;

    /// One instance's head: its row without its documents, so `state` is null and `output` is `None`. It costs little
    /// however large they are.
    fn head(&self, namespace: String, target: Target) -> Reply<'_, Option<Instance>>;

    /// Instances, newest first; those that wait for a signal, oldest first. With documents, a page ends with the
    /// instance whose documents reach [`PAGE_BYTES_MAX`], and goes on from there.
    fn list(&self, filter: Filter) -> Reply<'_, Page>;

    /// Events of an instance's history, each with the state after it.
    fn history(&self, id: InstanceId, events: Events, bounds: Bounds) -> Reply<'_, Portion<Event>>;

    /// Signals that wait for an instance, in order of arrival: those after this one, or from the first.
    fn inbox(
        &self,
        id: InstanceId,
        after: Option<SignalId>,
        bounds: Bounds,
    ) -> Reply<'_, Portion<InboxSignal>>;

    /// What is needed to explain why an instance is not moving.
    fn situation(&self, namespace: String, target: Target) -> Reply<'_, Option<Situation>>;

    /// Counts and queues, of one namespace or of all, and every worker.
    fn stats(&self, namespace: Option<String>) -> Reply<'_, Stats>;

    // What a server needs beside: the overview, those who watch, API keys, the audit log, kept answers.

    /// What store this is, and whether it answers.
    fn about(&self) -> Reply<'_, About>;

    /// What is runnable and what is awaited, with ages: of one namespace or of all.
    fn backlog(&self, namespace: Option<String>) -> Reply<'_, Backlog>;

    /// Looks at up to `rows_max` transitions after a position, in the order of their commits, and tells those of
    /// one namespace or of all. Without a position, tells where the end is. Instances without a history tell nothing.
    fn changes(&self, namespace: Option<String>, after: Option<i64>, rows_max: usize) -> Reply<'_, Changes>;

    /// Stores an API key.
    fn add_api_key(&self, new: NewApiKey) -> Reply<'_, ApiKey>;

    /// An API key by its public part, live or not.
    fn api_key(&self, id: String) -> Reply<'_, Option<ApiKey>>;

    /// The API keys of one namespace or of all, oldest first.
    fn api_keys(&self, namespace: Option<String>) -> Reply<'_, Vec<ApiKey>>;

    /// Revokes an API key of one namespace or of any; `None` if there is no such key.
    fn revoke_api_key(&self, namespace: Option<String>, id: String) -> Reply<'_, Option<ApiKey>>;

    /// Appends to the audit log.
    fn record_audit(&self, entries: Vec<NewAudit>) -> Reply<'_, ()>;

    /// Entries of the audit log, newest first.
    fn audit(&self, filter: AuditFilter) -> Reply<'_, Vec<Audit>>;

    /// Asks whether a repeatable request was sent before, and if not, notes that it is under way.
    fn admit(&self, request: Repeatable) -> Reply<'_, Admission>;

    /// Keeps the answer of an admitted request; without one, forgets that it was under way.
    fn answer(&self, namespace: String, key: String, answer: Option<Answer>) -> Reply<'_, ()>;

    /// Removes up to `rows_max` each of kept answers and entries of the audit log that are older than this.
    fn tidy(&self, answers_for: Duration, audit_for: Duration, rows_max: usize) -> Reply<'_, usize>;
}

/// A write's answer, and what it made possible.
#[derive(Clone, Debug, Default)]
pub struct Written<T> {
    /// The answer.
    pub value: T,
    /// What to poke.
    pub effects: Effects,
}

/// Hints that follow a commit. Losing them costs time, never work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Queues in which a row became runnable.
    pub queues: BTreeSet<String>,
    /// The nearest moment that was armed.
    pub wake_at: Option<Timestamp>,
    /// Instances that ended.
    pub ended: Vec<InstanceId>,
    /// Executing instances that someone wants cancelled.
    pub cancel: Vec<InstanceId>,
    /// A brake was put on: what is claimed and has not started should not.
    pub braked: bool,
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

impl Effects {
    /// Notes a moment that was armed.
    pub fn arm(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |armed| armed.min(at)));
    }

    /// Adds another write's.
    pub fn merge(&mut self, other: Self) {
        let Self { queues, wake_at, ended, cancel, braked } = other;
        self.queues.extend(queues);
        wake_at.into_iter().for_each(|at| self.arm(at));
        self.ended.extend(ended);
        self.cancel.extend(cancel);
        self.braked |= braked;
    }

    /// Notes that a row in this queue can run.
    pub fn runnable(&mut self, queue: &str) {
        if !self.queues.contains(queue) {
            self.queues.insert(queue.to_owned());
        }
    }
}

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
}

/// Which namespaces a worker serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// Every one.
    All,
    /// Just these.
    Only(Vec<String>),
}

/// What a worker wants to claim.
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
    /// At most this many rows.
    pub rows_max: usize,
}

/// A row in a worker's hands, with everything its step may ask for.
#[derive(Clone, Debug)]
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
    /// What it was parked on: ends or answers that are still to come.
    pub barrier: Option<u32>,
    /// How often it has spawned or dispatched.
    pub round: u32,
    /// When its key counts as taken.
    pub key_scope: KeyScope,
    /// The store's time.
    pub now: Timestamp,
}

/// An outcome to be committed.
#[derive(Clone, Debug)]
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
    /// What the outcome goes by of the inbox that its step was handed.
    pub handed: Handed,
}

impl Commit {
    /// The outcome of a claimed row's step, which received these signals. It gives the claim back.
    pub fn new(claimed: &Claimed, received: Vec<SignalId>, transition: Transition) -> Self {
        let handed = Handed::of(&claimed.inbox, &transition, &received);
        let (head, version, hold) = (claimed.head(), claimed.version, Hold::Release);
        Self { head, version, received, transition, hold, run: None, handed }
    }
}

impl Claimed {
    /// What the rules of an outcome decide by. Names that they do not look at are left out.
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

/// What became of a commit.
#[derive(Clone, Debug)]
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

/// What a sweep of the clock did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Rows woken.
    pub woken: usize,
    /// The next moment, in the store's time.
    pub next: Option<Timestamp>,
}

/// A worker that registers.
#[derive(Clone, Debug)]
pub struct NewWorker {
    /// Its name; a worker that registers under the same name takes over.
    pub name: String,
    /// The process it is.
    pub process: Process,
    /// How long its claims are safe without a heartbeat.
    pub lease: Duration,
    /// The namespaces it serves.
    pub namespaces: Namespaces,
    /// The queues it serves.
    pub queues: Vec<String>,
    /// The machines and versions it runs.
    pub machines: Vec<(String, u32)>,
    /// Those machines as its code declares them.
    pub declares: Vec<Declaration>,
}

/// What a heartbeat found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The lease is renewed; these of its instances should be cancelled.
    Held {
        /// Executing instances that someone wants cancelled.
        cancel: Vec<InstanceId>,
        /// Every claim it holds, as the store sees it: an instance, and the `seq` at which it is claimed.
        holds: Vec<(InstanceId, u64)>,
    },
    /// It is over: nothing this worker holds is its own any more.
    Lost,
}

/// Whether a step ran on a claim that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// None did: the row is as if it had not been claimed.
    No,
    /// One did, or may have: that counts as a try, and is an event.
    Yes,
}
