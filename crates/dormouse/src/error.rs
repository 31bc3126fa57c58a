//! Errors: one variant for each cause that a caller can act on.
//!
//! Losing a race is not here: a stale commit, a taken key in a batch, a duplicate signal are values.

use std::path::PathBuf;

use crate::unit::{Refusal, Which};
use crate::{InstanceId, SignalId, Status, Target, UnitStatus};

/// The error type of steps: any error becomes one by `?`.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the library refused or could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key, name, queue, lane, namespace or reason that cannot be used.
    #[error("the {what} {value:?} is refused: {reason}")]
    InvalidName {
        /// Which kind of name.
        what: &'static str,
        /// The value, shortened.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A trace context that is not one; nothing was stored.
    #[error(
        "the trace {0:?} is refused: it is written as in the header `traceparent`, version 00: 00-<32 hexadecimal digits>-<16>-<2>"
    )]
    InvalidTrace(String),
    /// A limit that cannot be used; nothing was changed.
    #[error("the limit {name:?} is refused: {reason}")]
    InvalidLimit {
        /// Its name.
        name: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A number that is too large.
    #[error("the {what} {value} is out of range: the largest is {max}")]
    OutOfRange {
        /// What it counts.
        what: &'static str,
        /// The number.
        value: u64,
        /// The largest that there can be.
        max: u64,
    },
    /// A state, payload or output over the configured limit.
    #[error(
        "the {what} is {bytes} bytes of JSON and the limit is {limit_bytes}: store the bulk elsewhere and keep a reference, or raise the limit"
    )]
    TooLarge {
        /// Which kind of document.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit in force.
        limit_bytes: usize,
    },
    /// A document with the character U+0000 in a text or in a name of it, which PostgreSQL cannot process.
    #[error(
        "the {what} holds the character U+0000, which cannot be stored: leave it out, or send bytes as base64"
    )]
    HoldsNul {
        /// Which kind of document.
        what: &'static str,
    },
    /// A document whose objects and arrays are inside each other more often than the configured limit allows.
    #[error(
        "the {what} has more than {depth_max} objects and arrays inside each other: flatten it, or raise the limit"
    )]
    TooDeep {
        /// Which kind of document.
        what: &'static str,
        /// The limit in force.
        depth_max: usize,
    },
    /// A document that is JSON by its grammar and yet could not be read back by a step.
    #[error("the {what} holds {holds}")]
    UnreadableDocument {
        /// Which kind of document.
        what: &'static str,
        /// What it holds.
        holds: &'static str,
    },
    /// A value that the database can never store; nothing was written.
    #[error("the database refuses a value, and would refuse it again: {0}; nothing was written")]
    RefusedValue(String),
    /// A stored row that cannot be read: another program wrote it, or a newer version of this one.
    #[error("a stored value cannot be read: {0}")]
    StrangeValue(String),
    /// A value that cannot become JSON, or text that is not JSON.
    #[error("the {what} is not valid JSON: {source}")]
    InvalidJson {
        /// Which kind of document.
        what: &'static str,
        /// What serde says.
        source: serde_json::Error,
    },
    /// A document that does not decode into the type asked for.
    #[error("the {what} does not decode: {reason}")]
    Decode {
        /// Which kind of document.
        what: &'static str,
        /// The decoding error and the path at which it happened.
        reason: String,
    },
    /// A state that is not one of its machine's own places.
    #[error("the state is refused: {0}")]
    InvalidState(String),
    /// An outcome whose options do not fit it, or a batch over its bound.
    #[error("the outcome is refused: {0}")]
    InvalidOutcome(String),
    /// A condition of a search that cannot be read.
    #[error("{0}")]
    InvalidCondition(String),
    /// A machine that cannot be registered as it is declared.
    #[error("the machine {machine} cannot be registered: {reason}")]
    InvalidMachine {
        /// Its name.
        machine: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// An engine that cannot be started as it is configured.
    #[error("the engine cannot start: {0}")]
    InvalidConfig(String),
    /// A schedule that could not happen, or that asks for too much; nothing was stored.
    #[error("the schedule {schedule:?} is refused: {reason}")]
    InvalidSchedule {
        /// Its name, shortened.
        schedule: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// No live schedule of this name.
    #[error("there is no schedule {0:?}: it was never created, or has ended")]
    NoSchedule(String),
    /// The key is held by another instance.
    #[error("the key {key:?} is taken by instance {holder}")]
    KeyTaken {
        /// The key.
        key: String,
        /// The instance that holds it.
        holder: InstanceId,
    },
    /// A signal for an instance that is unknown or has ended; nothing was stored.
    #[error("no live instance {0} to signal: it is unknown or has ended")]
    NoTarget(Target),
    /// A signal for which the inbox of its target has no room; nothing was stored.
    #[error(
        "the inbox of instance {0} is full: it holds as many signals, or as many bytes of them, as the limit allows; let it run, drop signals from its inbox, or raise the limit"
    )]
    InboxFull(Target),
    /// A signal that cannot be kept for an instance to come, and why; nothing was stored.
    #[error("the signal is refused: {0}")]
    NotKept(String),
    /// A signal that was to be kept in a namespace that has no room for it; nothing was stored.
    #[error(
        "no more signals can be kept in namespace {0:?}: it keeps as many, or as many bytes of them, as the limit allows; start their instances, drop some of them, or raise the limit"
    )]
    KeptFull(String),
    /// An instance whose step would be handed more than the configured limit.
    #[error(
        "the {what} of instance {id} are {bytes} bytes and a step is handed at most {limit_bytes}: drop some of them, or raise the limit, and retry it"
    )]
    TooMuchToRead {
        /// The instance.
        id: InstanceId,
        /// Its signals, or its children.
        what: &'static str,
        /// Their size.
        bytes: u64,
        /// The limit in force.
        limit_bytes: usize,
    },
    /// A payload that the machine's declaration of the signal refuses; nothing was stored.
    #[error("the payload of signal {signal:?} is refused by machine {machine}: {reason}")]
    PayloadRefused {
        /// The signal's name.
        signal: String,
        /// The machine that declares it.
        machine: String,
        /// The decoding error and its path.
        reason: String,
    },
    /// A signal that the machine does not declare, though it names those it takes; nothing was stored.
    #[error(
        "machine {machine} takes no signal {signal:?}{}: {}",
        .nearest.as_ref().map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default(),
        if .accepts.is_empty() { "it takes none".to_owned() } else { format!("it takes {}", .accepts.join(", ")) }
    )]
    UndeclaredSignal {
        /// The signal's name.
        signal: String,
        /// The machine.
        machine: String,
        /// The declared name that is most like it, if one is.
        nearest: Option<String>,
        /// The names that the machine declares.
        accepts: Vec<String>,
    },
    /// A queue that no machine, worker or instance names; nothing was changed.
    #[error(
        "there is no queue {queue:?}{}: no machine, worker or instance names it; use `even_if_unknown` to pause it anyway",
        .nearest.as_ref().map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default()
    )]
    UnknownQueue {
        /// Its name.
        queue: String,
        /// The known name that is most like it, if one is.
        nearest: Option<String>,
    },
    /// No such instance.
    #[error("there is no instance {0}")]
    NotFound(Target),
    /// No such signal in the instance's inbox: it was never there, was consumed, or was dropped; nothing was changed.
    #[error("instance {id} has no signal {signal} in its inbox: it was consumed or dropped, or never there")]
    NoSignal {
        /// The instance.
        id: InstanceId,
        /// The id asked for.
        signal: SignalId,
    },
    /// No such event in the instance's history (or history is off, or it was pruned).
    #[error(
        "instance {id} has no event {seq} in its history: it never happened, was pruned, or history is off"
    )]
    NoEvent {
        /// The instance.
        id: InstanceId,
        /// The sequence number asked for.
        seq: u64,
    },
    /// The verb does not apply to an instance in this status.
    #[error("instance {id} is {status}: {reason}")]
    WrongStatus {
        /// The instance.
        id: InstanceId,
        /// Its status.
        status: Status,
        /// What would be needed.
        reason: &'static str,
    },
    /// The instance is not at the `seq` at which the caller wanted to act on it; nothing was changed.
    #[error("instance {id} is at seq {actual} and not at {expected}: it moved in between; look at it again")]
    StaleSeq {
        /// The instance.
        id: InstanceId,
        /// The `seq` the caller expected.
        expected: u64,
        /// The `seq` the instance is at.
        actual: u64,
    },
    /// A start of a machine that is neither registered here nor was ever declared by a worker; nothing was stored.
    #[error(
        "no worker has declared a machine {machine:?}{}: start a worker that runs it first, or use `even_if_unknown` to start it anyway",
        .nearest.as_ref().map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default()
    )]
    UnknownMachine {
        /// Its name.
        machine: String,
        /// The declared name that is most like it, if one is.
        nearest: Option<String>,
    },
    /// No code that is registered here knows the machine, so nothing can be said of what its instances would do.
    #[error(
        "machine {machine} version {version} is not registered in this program: use a program that registers it"
    )]
    Untold {
        /// The machine.
        machine: String,
        /// Its version.
        version: u32,
    },
    /// The step's own writes were refused; neither they nor its outcome are committed.
    #[error("the step's own writes failed: {0}")]
    OwnWrites(#[source] BoxError),
    /// A way to write with the commit that the store in use does not have.
    #[error("this store has no {asked_for}: {instead}")]
    WrongStore {
        /// What was asked for.
        asked_for: &'static str,
        /// What to use.
        instead: &'static str,
    },
    /// A step asked for the answers of a unit that it was not parked on.
    #[error(
        "instance {0} was not parked on a unit before this step: only the step that a `dispatch` names sees the answers"
    )]
    NoUnit(InstanceId),
    /// A unit that was closed without the output asked for.
    #[error("the unit is {status} and has no output: {reason}")]
    NoOutput {
        /// How it was closed.
        status: UnitStatus,
        /// Why there is none.
        reason: String,
    },
    /// A resume token that is not taken; nothing was changed.
    #[error("the resume token is refused: {}", .0.told())]
    TokenRefused(Refusal),
    /// A completion that is not the answer; nothing was changed.
    #[error("the completion of interaction {to} is refused: {}{}", .refusal.told(), detail(.reason))]
    CompletionRefused {
        /// The interaction, as the caller named it.
        to: Which,
        /// Why.
        refusal: Refusal,
        /// What is wrong with its output, and where, if that is why it is refused.
        reason: Option<String>,
    },
    /// The instance waited for ended without an output.
    #[error("instance {id} is {status}: {}", .error.as_deref().unwrap_or("no reason given"))]
    Ended {
        /// The instance.
        id: InstanceId,
        /// `failed` or `cancelled`.
        status: Status,
        /// Why it failed or was cancelled.
        error: Option<String>,
    },
    /// The instance is of another machine than the caller thinks.
    #[error("instance {id} is of machine {machine:?}, not of {asked_for:?}")]
    WrongMachine {
        /// The instance.
        id: InstanceId,
        /// Its machine.
        machine: String,
        /// The one asked for.
        asked_for: String,
    },
    /// The instance is still live after the time given to wait.
    #[error("still live after {waited_ms} ms: {explanation}")]
    StillLive {
        /// The instance.
        id: InstanceId,
        /// How long the caller waited.
        waited_ms: u64,
        /// Why it is not moving, in one sentence.
        explanation: String,
    },
    /// An address that names no known store.
    #[error("cannot open {url:?}: {reason}")]
    InvalidUrl {
        /// The address.
        url: String,
        /// What would be accepted.
        reason: &'static str,
    },
    /// A database file that cannot be opened at all.
    #[error("cannot open {}: {reason}", .path.display())]
    CannotOpen {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A database file that belongs to something else.
    #[error("{} is not a dormouse database: {reason}; nothing in it was changed", .path.display())]
    NotDormouse {
        /// The file.
        path: PathBuf,
        /// How that was found out.
        reason: String,
    },
    /// A database written by a newer dormouse.
    #[error(
        "{} has schema version {found} and this dormouse knows up to {known}: upgrade the program; nothing was changed", .path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// The schema version in the file.
        found: i64,
        /// The newest one known here.
        known: i64,
    },
    /// A database server that cannot be reached as its address says.
    #[error("cannot connect to {reason}")]
    CannotConnect {
        /// The host, never the password, and what went wrong.
        reason: String,
    },
    /// A database without this version's schema, or with another build's functions.
    #[error(
        "the database has schema version {found} and this dormouse needs {known} with its own functions: run `dormouse migrate`, or call `PostgresStore::migrate`; nothing was changed"
    )]
    OlderSchema {
        /// The schema version in the database; 0 if there is none.
        found: u32,
        /// The one needed.
        known: u32,
    },
    /// A linked SQLite with a known corruption bug.
    #[error(
        "the linked SQLite {found} can corrupt a WAL database (its WAL-reset bug was fixed in 3.51.3): build with rusqlite's `bundled` feature, or link 3.51.3 or newer"
    )]
    UnsafeSqlite {
        /// The version linked.
        found: String,
    },
    /// The database cannot take this now, as it is locked, read-only, slow or out of reach; try again. A write
    /// whose answer was lost may have happened.
    #[error("the database cannot take this now: {0}")]
    Busy(#[source] BoxError),
    /// The disk is full; nothing of the write was kept.
    #[error("the disk is full, nothing was written: {0}")]
    DiskFull(#[source] BoxError),
    /// Any other fault of the store; nothing of the write was kept.
    #[error("the store failed: {0}")]
    Storage(#[source] BoxError),
    /// The store was closed while the call was under way.
    #[error("the store is closed")]
    Closed,
}

fn detail(reason: &Option<String>) -> String {
    reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"))
}

impl Error {
    /// Whether the same call may succeed later with nothing changed by the caller.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::DiskFull(_) | Self::Storage(_))
    }

    /// Whether the caller's input is at fault, so that the same call always fails.
    pub(crate) fn is_of_the_document(&self) -> bool {
        matches!(
            self,
            Self::InvalidName { .. }
                | Self::TooLarge { .. }
                | Self::TooDeep { .. }
                | Self::HoldsNul { .. }
                | Self::UnreadableDocument { .. }
                | Self::InvalidJson { .. }
                | Self::RefusedValue(_)
        )
    }
}
