//! The head: an instance's row without its documents. All that a rule decides by.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{DEFAULT_NAMESPACE, InstanceId, KeyScope, Status, Wake, WorkerId};

/// An instance's row without its documents: state, output and payloads are not in it.
///
/// Its JSON form has these names. Statuses and wake reasons are their words, moments are RFC 3339, ids are numbers. Reading
/// it, a field that is left out is as [`Head::new`] has it.
///
/// ```
/// use dormouse::Status;
/// use dormouse::rules::Head;
///
/// let head: Head = serde_json::from_str(
///     r#"{
///         "id": 7, "machine": "checkout", "version": 2, "step": "waiting", "seq": 3,
///         "status": "awaiting_signal", "awaits": ["paid"], "wake_at": "2030-01-01T00:00:00Z",
///         "parent": [4, 1], "key": "order:42", "key_scope": {"in": ["runnable", "executing"]}
///     }"#,
/// )?;
/// assert_eq!(head.status, Status::AwaitingSignal);
/// assert_eq!(head.namespace, "default");
///
/// let json = serde_json::to_value(&head)?;
/// assert_eq!(json["wake_at"], "2030-01-01T00:00:00Z");
/// assert_eq!(json["barrier"], serde_json::Value::Null);
/// assert_eq!(serde_json::from_value::<Head>(json)?, head);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Head {
    /// Its id.
    pub id: InstanceId,
    /// Its namespace.
    pub namespace: String,
    /// Its machine's name.
    pub machine: String,
    /// Its machine's version.
    pub version: u32,
    /// Its status.
    pub status: Status,
    /// Its step.
    pub step: String,
    /// How many transitions were committed: the version that every commit checks.
    pub seq: u64,
    /// Tries of the current step so far.
    pub attempt: u32,
    /// Its queue.
    pub queue: String,
    /// Its place in line: since when it can run.
    pub runnable_at: Timestamp,
    /// The worker that holds it.
    pub worker: Option<WorkerId>,
    /// The one moment at which the clock alone makes it runnable.
    pub wake_at: Option<Timestamp>,
    /// Why it last woke, until it progresses.
    pub wake: Option<Wake>,
    /// The names it awaits, until it progresses.
    pub awaits: Vec<String>,
    /// How many signals in its inbox are not consumed.
    pub inbox: u32,
    /// How many bytes their payloads have.
    pub inbox_bytes: u64,
    /// Ends of children, or answers, that its barrier still waits for.
    pub barrier: Option<u32>,
    /// How often it has spawned or dispatched.
    pub round: u32,
    /// Its parent, and the round of the parent that it belongs to.
    pub parent: Option<(InstanceId, u32)>,
    /// Whether its end was taken off its parent's barrier.
    pub joined: bool,
    /// Its lane.
    pub lane: Option<String>,
    /// Whether it can run but another holds its lane.
    pub blocked: bool,
    /// Whether its brake is on.
    pub paused: bool,
    /// Whether it is cancelled when its running step ends.
    pub cancel_requested: bool,
    /// Why it is cancelled.
    pub cancel_reason: Option<String>,
    /// The ancestor whose cancel takes it along.
    pub cancelled_with: Option<InstanceId>,
    /// Whether its transitions are recorded.
    pub keeps_history: bool,
    /// Its key.
    pub key: Option<String>,
    /// When that key counts as taken.
    pub key_scope: KeyScope,
    /// The last error, of a retried step or of its end.
    pub last_error: Option<String>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How often the worker of its step died in a row, as of `crashes_seq`.
    pub crashes: u32,
    /// The `seq` at which `crashes` was counted: a later one means that the step has committed since.
    pub crashes_seq: u64,
    /// Until when it had been parked on signals when it ended.
    pub parked_until: Option<Timestamp>,
}

impl Default for Head {
    fn default() -> Self {
        Self::new(InstanceId(0), "", 1, "")
    }
}

impl Head {
    /// A runnable instance at a step, with nothing else about it.
    pub fn new(id: InstanceId, machine: &str, version: u32, step: &str) -> Self {
        Self {
            id,
            namespace: DEFAULT_NAMESPACE.to_owned(),
            machine: machine.to_owned(),
            version,
            status: Status::Runnable,
            step: step.to_owned(),
            seq: 1,
            attempt: 0,
            queue: "default".to_owned(),
            runnable_at: Timestamp::UNIX_EPOCH,
            worker: None,
            wake_at: None,
            wake: None,
            awaits: Vec::new(),
            inbox: 0,
            inbox_bytes: 0,
            barrier: None,
            round: 0,
            parent: None,
            joined: false,
            lane: None,
            blocked: false,
            paused: false,
            cancel_requested: false,
            cancel_reason: None,
            cancelled_with: None,
            keeps_history: true,
            key: None,
            key_scope: KeyScope::Live,
            last_error: None,
            ended_at: None,
            crashes: 0,
            crashes_seq: 0,
            parked_until: None,
        }
    }

    /// Whether it can be claimed, or is: then it also holds its lane.
    pub fn is_open(&self) -> bool {
        match self.status {
            Status::Executing => true,
            Status::Runnable => !self.blocked && !self.paused,
            _ => false,
        }
    }

    /// Forgets what the last park was about: the step has progressed.
    pub(super) fn progress(&mut self) {
        self.attempt = 0;
        self.wake = None;
        self.awaits.clear();
        self.barrier = None;
        self.last_error = None;
    }
}
