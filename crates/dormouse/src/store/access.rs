//! What a server needs of a store beside the engine's verbs: who may come in, what they changed, what they were
//! answered, and what changes while they watch.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{EventKind, InstanceId, Status, When};

/// What an API key allows. Each scope includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Look.
    Read,
    /// Start, signal, cancel, retry, pause, fork.
    Operate,
    /// API keys, the audit log, collection.
    Admin,
}

impl Scope {
    /// Every scope, from the least.
    pub const ALL: [Self; 3] = [Self::Read, Self::Operate, Self::Admin];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// The scope of this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// An API key to be stored. The secret itself never comes here.
#[derive(Clone, Debug)]
pub struct NewApiKey {
    /// Its public part, by which it is found.
    pub id: String,
    /// The hash of its secret part.
    pub hash: [u8; 32],
    /// Whose it is, in words.
    pub label: String,
    /// The namespace it opens.
    pub namespace: String,
    /// What it allows there.
    pub scope: Scope,
    /// When it stops to count; `None` is never.
    pub expires: Option<When>,
}

/// An API key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Its public part.
    pub id: String,
    /// The hash of its secret part.
    pub hash: [u8; 32],
    /// Whose it is, in words.
    pub label: String,
    /// The namespace it opens.
    pub namespace: String,
    /// What it allows there.
    pub scope: Scope,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops to count.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Whether it counts, at the store's time of the read.
    pub is_live: bool,
}

/// A change that someone made, for the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAudit {
    /// The namespace in which it was made.
    pub namespace: String,
    /// Who made it.
    pub who: String,
    /// What was asked for, such as `instance.cancel`.
    pub what: String,
    /// To what it was done.
    pub target: Option<String>,
    /// How it ended: `ok`, or the cause of the refusal.
    pub result: String,
}

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Its number; entries grow by it.
    pub id: i64,
    /// When.
    pub at: Timestamp,
    /// What is told.
    pub entry: NewAudit,
}

/// Which entries of the audit log to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// In this namespace.
    pub namespace: Option<String>,
    /// By this one.
    pub who: Option<String>,
    /// Of this kind.
    pub what: Option<String>,
    /// Done to this.
    pub target: Option<String>,
    /// Older than this entry: the last one of the page before.
    pub before: Option<i64>,
    /// At most this many.
    pub limit: usize,
}

/// A request that its caller may send again, and wants done once.
#[derive(Clone, Debug)]
pub struct Repeatable {
    /// The caller's namespace.
    pub namespace: String,
    /// The caller's name for the request.
    pub key: String,
    /// The hash of all that it asks for.
    pub fingerprint: [u8; 32],
    /// How long an answer is kept.
    pub kept_for: Duration,
    /// After this long without an answer, whoever was at it is taken for dead.
    pub given_up_after: Duration,
}

/// What is known of a repeatable request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Nothing: it is the caller's to do, and now noted as under way.
    New,
    /// It was answered before.
    Answered(Answer),
    /// It is being done at this moment.
    UnderWay,
    /// The same name was used for something else.
    Different,
}

/// An answer that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status code.
    pub status: u16,
    /// Its body.
    pub body: String,
}

/// A transition, as it is told to those who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its number: changes grow by it, over all instances.
    pub id: i64,
    /// The instance.
    pub instance: InstanceId,
    /// Its namespace.
    pub namespace: String,
    /// Its machine.
    pub machine: String,
    /// Its key.
    pub key: Option<String>,
    /// Its queue.
    pub queue: String,
    /// Its status when the change was read, which may be that of a later change.
    pub status: Status,
    /// What happened.
    pub kind: EventKind,
    /// The event's number in the instance's history.
    pub seq: u64,
    /// The step afterwards.
    pub step: String,
    /// When.
    pub at: Timestamp,
}

/// A stretch of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those of the namespace asked for, in order.
    pub changes: Vec<Change>,
    /// Where to look on. Smaller than what was asked for, if the end of the history was collected meanwhile.
    pub next: i64,
    /// Whether there may be more already.
    pub more: bool,
}

/// What waits to run and what waits for signals, with ages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Queues in which something is runnable, or whose brake is on.
    pub queues: Vec<QueueDepth>,
    /// What is awaited.
    pub awaiting: Vec<Awaited>,
}

/// What is runnable in a queue.
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
    /// The instance among them that was inserted first.
    pub oldest: InstanceId,
    /// Since when that one is parked.
    pub since: Timestamp,
}

/// How many await what, the most first.
pub(super) fn counted(awaiting: Vec<Awaited>) -> Vec<(Vec<String>, u64)> {
    let mut counts: Vec<_> = awaiting.into_iter().map(|awaited| (awaited.names, awaited.count)).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

/// How far parked instances are counted for one set of names.
pub const AWAITING_MAX: u64 = 10_000;

/// What store this is.
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
