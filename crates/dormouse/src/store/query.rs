//! What the queries ask and answer.

use jiff::Timestamp;

use crate::store::Namespaces;
use crate::{Instance, InstanceId, Process, Status, WorkerId};

/// What is to be known of an instance before it is sent a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressee {
    /// Its machine.
    pub machine: String,
    /// Its version.
    pub version: u32,
    /// The names it awaits.
    pub awaits: Vec<String>,
}

/// Which instances to list: newest first, except that those who wait for a signal come oldest first.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// In this namespace.
    pub namespace: Option<String>,
    /// Of this machine.
    pub machine: Option<String>,
    /// In this status.
    pub status: Option<Status>,
    /// In this queue.
    pub queue: Option<String>,
    /// Whose key starts so.
    pub key_prefix: Option<String>,
    /// With this parent.
    pub parent: Option<InstanceId>,
    /// Only roots: those that no other instance spawned. It narrows what the other conditions find, so a page of roots
    /// costs a look at every child between them.
    pub roots: bool,
    /// With all of these tags. Name the rarest first: its instances are the ones looked at.
    pub tags: Vec<String>,
    /// Parked on this signal; who has waited longest comes first.
    pub awaiting: Option<String>,
    /// Inserted at or after this.
    pub created_from: Option<Timestamp>,
    /// Inserted before this.
    pub created_before: Option<Timestamp>,
    /// Continue after this instance: the last one of the page before.
    pub after: Option<InstanceId>,
    /// At most this many.
    pub limit: usize,
}

/// A page of instances.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The instances, newest first.
    pub instances: Vec<Instance>,
    /// Pass this as [`Filter::after`] for the next page.
    pub next: Option<InstanceId>,
}

/// Everything that can keep an instance from moving.
#[derive(Clone, Debug)]
pub struct Situation {
    /// The instance.
    pub instance: Instance,
    /// The store's time.
    pub now: Timestamp,
    /// Whether its queue's brake is on.
    pub queue_paused: bool,
    /// The instance that holds its lane.
    pub lane_holder: Option<InstanceId>,
    /// Live workers.
    pub workers: Vec<WorkerView>,
    /// How many runnable rows of its queue go before it, counted up to 1,000.
    pub ahead: usize,
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
    /// Instances by namespace, machine, version, step and status.
    pub instances: Vec<Count>,
    /// Parked instances by what they await: the set of names, and how many, counted up to
    /// [`AWAITING_MAX`](crate::store::AWAITING_MAX); the most first.
    pub awaiting: Vec<(Vec<String>, u64)>,
    /// Queues whose brake is on.
    pub paused_queues: Vec<QueueView>,
    /// Registered workers.
    pub workers: Vec<WorkerView>,
    /// The next moment the clock wakes a row.
    pub next_wake_at: Option<Timestamp>,
}

impl Stats {
    /// How many instances are in this status.
    pub fn count(&self, status: Status) -> u64 {
        self.instances.iter().filter(|row| row.status == status).map(|row| row.count).sum()
    }
}
