//! What a server needs of a store besides the engine's verbs: API keys, the audit log, kept answers, and the feed of
//! changes.

use std::time::Duration;

use jiff::Timestamp;

use super::{Reply, Store};
use crate::words::words;
use crate::{EventKind, InstanceId, Status, When};

/// What only a server needs: API keys, the audit log, kept answers, and the feed of changes.
///
/// A store may leave it out, and then works embedded and has no server: implement [`Store::server`] to offer it. Nothing
/// here touches an instance, and no verb of the engine touches what is here.
pub trait ServerStore: Store {
    /// Reads up to `rows_max` transitions after a position, in the order of their commits, and returns those of one
    /// namespace or of all. Without a position, returns where the end is. Instances without a history have no changes.
    ///
    /// A position must not skip a transaction that is still open: a reader that continues from [`Changes::next`] must
    /// see every change once.
    fn changes(&self, namespace: Option<String>, after: Option<i64>, rows_max: usize) -> Reply<'_, Changes>;

    /// Stores an API key. Its id must be new.
    fn add_api_key(&self, new: NewApiKey) -> Reply<'_, ApiKey>;

    /// An API key by its public part, live or not.
    fn api_key(&self, id: String) -> Reply<'_, Option<ApiKey>>;

    /// The API keys of one namespace or of all, oldest first.
    fn api_keys(&self, namespace: Option<String>) -> Reply<'_, Vec<ApiKey>>;

    /// Revokes an API key of one namespace or of any; `None` if there is no such key. Revoking it again keeps the first
    /// moment.
    fn revoke_api_key(&self, namespace: Option<String>, id: String) -> Reply<'_, Option<ApiKey>>;

    /// Appends to the audit log, all entries or none.
    fn record_audit(&self, entries: Vec<NewAudit>) -> Reply<'_, ()>;

    /// Entries of the audit log, newest first.
    fn audit(&self, filter: AuditFilter) -> Reply<'_, Vec<Audit>>;

    /// Looks whether a repeatable request was sent before, and if not, notes in the same transaction that it is under
    /// way: of two that come at once, one is new.
    fn admit(&self, request: Repeatable) -> Reply<'_, Admission>;

    /// Keeps the answer of an admitted request. Without an answer, forgets that it was under way, so that it can be sent
    /// again as if it were new.
    fn answer(&self, namespace: String, key: String, answer: Option<Answer>) -> Reply<'_, ()>;

    /// Removes kept answers and entries of the audit log that are older than this, up to `rows_max` of each.
    fn tidy(&self, answers_for: Duration, audit_for: Duration, rows_max: usize) -> Reply<'_, usize>;
}

words! {
    /// What an API key allows. Each scope includes those before it.
    #[non_exhaustive]
    Scope: "scope" {
        /// Look.
        Read => "read",
        /// Start, signal, cancel, retry, pause, fork.
        Operate => "operate",
        /// API keys, the audit log, collection.
        Admin => "admin",
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
    /// When it expires; `None` is never.
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
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Whether it is valid, at the store's time of the read.
    pub is_live: bool,
}

/// A change that someone made, for the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAudit {
    /// The namespace in which it was made.
    pub namespace: String,
    /// Who made it.
    pub who: String,
    /// The kind of request, such as `instance.cancel`.
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
    /// What was done, by whom.
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
    /// The hash of the whole request.
    pub fingerprint: [u8; 32],
    /// How long an answer is kept.
    pub kept_for: Duration,
    /// After this long without an answer, the process that worked on it counts as dead.
    pub given_up_after: Duration,
}

/// Whether a repeatable request was sent before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is new: the caller must do it, and it is now noted as under way.
    New,
    /// It was answered before.
    Answered(Answer),
    /// It is under way.
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

/// A transition, as those who watch see it.
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
    /// When the run of the step that led to it started, and for how many microseconds it ran.
    pub ran: Option<(Timestamp, u64)>,
}

/// Some changes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The changes of the requested namespace, in order.
    pub changes: Vec<Change>,
    /// Where to continue. Smaller than the given position if the end of the history was collected meanwhile.
    pub next: i64,
    /// Whether there may already be more.
    pub more: bool,
}
