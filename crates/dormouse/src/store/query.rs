//! The queries, their filters and their results.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Declarations, LaneView, Namespaces, Progress, Reply, Reports};
#[cfg(doc)]
use crate::search::LOOKED_MAX;
use crate::search::{Condition, Looked};
use crate::{
    Event, InboxSignal, Instance, InstanceId, Process, ShareWeight, SignalId, Status, Target, WorkerId,
};

/// The queries. Each sees one moment of the store, holds up no write, and changes nothing.
///
/// Their cost must not grow with rows that they do not return: lists are read by an index, and end at their bounds.
pub trait Queries: Send + Sync + 'static {
    /// One instance, with its documents.
    fn get(&self, namespace: String, target: Target) -> Reply<'_, Option<Instance>>;

    /// One instance's head: its row without its documents, so `state` is null and `output` is `None`. It costs the same
    /// however large they are.
    fn head(&self, namespace: String, target: Target) -> Reply<'_, Option<Instance>>;

    /// The machine, version and awaited names of these targets, in order; `None` for a target that is not there.
    fn addressees(&self, namespace: String, targets: Vec<Target>) -> Reply<'_, Vec<Option<Addressee>>>;

    /// Instances, newest first; of those that failed, the latest failure first; of those that wait for a signal, the one
    /// that has waited longest first. With documents, a page ends with the
    /// instance whose documents reach [`PAGE_BYTES_MAX`], and [`Page::next`] continues after it.
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

    /// Everything that can keep an instance from moving.
    fn situation(&self, namespace: String, target: Target) -> Reply<'_, Option<Situation>>;

    /// Counts and queues, of one namespace or of all, and every worker.
    fn stats(&self, namespace: Option<String>) -> Reply<'_, Stats>;

    /// Counts and ages of runnable rows and of awaited signals, of one namespace or of all.
    fn backlog(&self, namespace: Option<String>) -> Reply<'_, Backlog>;

    /// Shares whose weight is not 1, of one namespace or of all, in order, up to 1,000.
    fn shares(&self, namespace: Option<String>) -> Reply<'_, Vec<ShareWeight>>;

    /// The last reports of steps that run, up to `rows_max`.
    fn reports(&self, which: Reports, rows_max: usize) -> Reply<'_, Vec<Progress>>;

    /// The declarations of machines, whether or not their workers still live. Returns `None` if nothing has changed
    /// since this mark; that case must be cheap, because callers ask often.
    fn declared(&self, known: Option<String>) -> Reply<'_, Option<Declarations>>;

    /// Which store this is, and its time. Use it to check that the database responds.
    fn about(&self) -> Reply<'_, About>;
}

/// What must be known of an instance before a signal is sent to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressee {
    /// Its machine.
    pub machine: String,
    /// Its version.
    pub version: u32,
    /// The names it awaits.
    pub awaits: Vec<String>,
}

/// The default number of bytes of documents after which a page of a list ends.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The places that [`Stats::instances`] names at most.
pub const PLACES_MAX: usize = 5_000;

/// The queues that are listed at most.
pub(crate) const QUEUES_MAX: usize = 1_000;

/// How much of a list is read at a time. Reading ends with the row that reaches either bound: one row is always read, and
/// what is read is at most that row over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Rows.
    pub rows_max: usize,
    /// Bytes of documents.
    pub bytes_max: usize,
}

impl Bounds {
    /// So many rows, and [`PAGE_BYTES_MAX`].
    pub const fn rows(rows_max: usize) -> Self {
        Self { rows_max, bytes_max: PAGE_BYTES_MAX }
    }

    /// Whether a bound is reached.
    pub(crate) const fn are_reached(self, rows: usize, bytes: usize) -> bool {
        rows >= self.rows_max || bytes >= self.bytes_max
    }
}

/// Part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portion<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Whether the list goes on after the last of them.
    pub more: bool,
}

impl<T> Default for Portion<T> {
    fn default() -> Self {
        Self { items: Vec::new(), more: false }
    }
}

/// Which events of a history, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// Those after the event of this number, oldest first; after 0, from the first.
    After(u64),
    /// Those before the event of this number, newest first; before `u64::MAX`, from the last.
    Before(u64),
}

/// Which instances to list: newest first. With `awaiting`, the one that has waited longest comes first; with status
/// `failed`, and no key, tag or parent, the latest failure.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// In this namespace.
    pub namespace: Option<String>,
    /// Of this machine.
    pub machine: Option<String>,
    /// In this status.
    pub status: Option<Status>,
    /// In one of these statuses; empty: in any.
    pub statuses: Vec<Status>,
    /// Of this version.
    pub version: Option<u32>,
    /// At this step.
    pub step: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// Whose key starts with this.
    pub key_prefix: Option<String>,
    /// With this parent.
    pub parent: Option<InstanceId>,
    /// Only roots: those that no other instance spawned. It narrows what the other conditions find, so a page of roots
    /// costs a look at every child between them.
    pub roots: bool,
    /// With all of these tags. Name the rarest first: its instances are the ones looked at.
    pub tags: Vec<String>,
    /// Parked on this signal; the one that has waited longest comes first.
    pub awaiting: Option<String>,
    /// Inserted at or after this.
    pub created_from: Option<Timestamp>,
    /// Inserted before this.
    pub created_before: Option<Timestamp>,
    /// Whose last transition was at or after this.
    pub changed_from: Option<Timestamp>,
    /// Whose last transition was before this.
    pub changed_before: Option<Timestamp>,
    /// Ended at or after this.
    pub ended_from: Option<Timestamp>,
    /// Ended before this.
    pub ended_before: Option<Timestamp>,
    /// Whose last error has this text in it, in upper or lower case.
    pub error: Option<String>,
    /// Whose state meets all of these. With a machine that declares one of the fields as indexed
    /// ([`Machine::indexes`](crate::Machine::indexes)), its index leads to them.
    pub conditions: Vec<Condition>,
    /// Oldest first instead of newest first.
    pub oldest_first: bool,
    /// Only heads: `state` is null and `output` is `None` in each, and `last_error` is cut after 1,000 characters. For
    /// lists that show no documents: a page then costs the same however large they are.
    pub heads_only: bool,
    /// Continue after this instance: the last one of the page before.
    pub after: Option<InstanceId>,
    /// The [`Page::next_at`] of the page before, so that an instance that has moved since is still where it was in the
    /// list. Without it, it is looked up.
    pub after_at: Option<Timestamp>,
    /// At most this many.
    pub limit: usize,
}

impl Filter {
    /// Whether the list is ordered by when its instances failed.
    pub(crate) fn is_by_failure(&self) -> bool {
        let Self { status, awaiting, parent, key_prefix, tags, namespace, .. } = self;
        *status == Some(Status::Failed)
            && awaiting.is_none()
            && parent.is_none()
            && key_prefix.is_none()
            && (tags.is_empty() || namespace.is_none())
            && !self.is_search()
    }

    /// Whether it is a search: it has a condition that no index of its own leads to, so that a page ends after
    /// [`LOOKED_MAX`] rows were looked at.
    pub fn is_search(&self) -> bool {
        let times = [self.changed_from, self.changed_before, self.ended_from, self.ended_before];
        !self.statuses.is_empty()
            || self.version.is_some()
            || self.step.is_some()
            || times.iter().any(Option::is_some)
            || self.error.is_some()
            || !self.conditions.is_empty()
            || self.oldest_first
    }

    /// Whether it finds nothing but what failed.
    pub(crate) fn is_of_failed(&self) -> bool {
        self.status == Some(Status::Failed) || self.statuses == [Status::Failed]
    }
}

/// A page of instances.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The instances, newest first. They may be fewer than the filter's limit though there are more: a page with
    /// documents ends when those reach [`PAGE_BYTES_MAX`], and one of a search when [`LOOKED_MAX`] rows were looked at.
    pub instances: Vec<Instance>,
    /// Pass this as [`Filter::after`] for the next page.
    pub next: Option<InstanceId>,
    /// Pass this as [`Filter::after_at`], in a list that is not in the order of ids.
    pub next_at: Option<Timestamp>,
    /// How far a search looked; `None` if the filter is no search.
    pub looked: Option<Looked>,
}

/// Everything that can keep an instance from moving.
#[derive(Clone, Debug)]
pub struct Situation {
    /// The instance's head: without its documents.
    pub instance: Instance,
    /// The store's time.
    pub now: Timestamp,
    /// Whether its queue's brake is on.
    pub queue_paused: bool,
    /// Its lane.
    pub lane: Option<LaneView>,
    /// Live workers.
    pub workers: Vec<WorkerView>,
    /// How many runnable rows of its machine in its queue, priority and share go before it, counted up to 1,000.
    pub ahead: usize,
    /// How many runnable rows of its machine and namespace have a more urgent priority, counted up to 1,000.
    pub urgent: usize,
    /// The weight of its share.
    pub weight: u32,
}

/// A worker as it registered.
#[derive(Clone, Debug)]
pub struct WorkerView {
    /// Its id.
    pub id: WorkerId,
    /// Its name.
    pub name: String,
    /// Its process.
    pub process: Process,
    /// When it registered.
    pub started_at: Timestamp,
    /// When its lease ends.
    pub lease_until: Timestamp,
    /// The namespaces it serves.
    pub namespaces: Namespaces,
    /// The queues it serves.
    pub queues: Vec<String>,
    /// The machines and versions it runs.
    pub machines: Vec<(String, u32)>,
    /// How many instances it holds.
    pub claims: usize,
    /// The transports it has; `None` if it registered before this was stored.
    pub transports: Option<Vec<String>>,
}

/// A queue with its brake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether its brake is on.
    pub paused: bool,
}

/// How many instances of one version are at one place of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Their namespace.
    pub namespace: String,
    /// Their machine.
    pub machine: String,
    /// Their version.
    pub version: u32,
    /// Their step.
    pub step: String,
    /// Their status.
    pub status: Status,
    /// How many they are.
    pub count: u64,
}

/// Counts of what is there.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Instances by namespace, machine, version, step and status, in that order: the first [`PLACES_MAX`] places.
    pub instances: Vec<Count>,
    /// Whether there are more places than those.
    pub more_places: bool,
    /// Instances by status, over all steps.
    pub statuses: BTreeMap<Status, u64>,
    /// Parked instances by what they await: the set of names, and how many, counted up to
    /// [`AWAITING_MAX`]; the most first.
    pub awaiting: Vec<(Vec<String>, u64)>,
    /// Queues whose brake is on, up to 1,000.
    pub paused_queues: Vec<QueueView>,
    /// Registered workers.
    pub workers: Vec<WorkerView>,
    /// The next moment the clock wakes a row.
    pub next_wake_at: Option<Timestamp>,
    /// The next moment at which mail is due.
    pub next_mail_at: Option<Timestamp>,
}

impl Stats {
    /// How many instances are in this status.
    pub fn count(&self, status: Status) -> u64 {
        self.statuses.get(&status).copied().unwrap_or_default()
    }
}

/// Runnable rows and awaited signals, with ages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Queues in which something is runnable, or whose brake is on.
    pub queues: Vec<QueueDepth>,
    /// What is awaited.
    pub awaiting: Vec<Awaited>,
}

/// The runnable rows of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How many instances are runnable in it.
    pub runnable: u64,
    /// Since when the first of those that could be claimed waits.
    pub oldest_runnable_at: Option<Timestamp>,
    /// Whether its brake is on.
    pub paused: bool,
}

/// A set of names that instances are parked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The names.
    pub names: Vec<String>,
    /// How many instances, counted up to [`AWAITING_MAX`].
    pub count: u64,
    /// The instance among them that has waited longest.
    pub oldest: InstanceId,
    /// Since when that one is parked.
    pub since: Timestamp,
}

/// How many await what, the most first.
pub(crate) fn counted(awaiting: Vec<Awaited>) -> Vec<(Vec<String>, u64)> {
    let mut counts: Vec<_> = awaiting.into_iter().map(|awaited| (awaited.names, awaited.count)).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

/// How far parked instances are counted for one set of names.
pub const AWAITING_MAX: u64 = 10_000;

/// Which store this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its kind: `sqlite` or `postgres`.
    pub store: &'static str,
    /// The version of the database.
    pub version: String,
    /// The version of the schema.
    pub schema: i64,
    /// The version of the schema when it was opened: 0 for a new file. Where migrating is a step of its own, the same.
    pub schema_found: i64,
    /// The store's time.
    pub now: Timestamp,
}
