//! The documents that the API returns: the library's rows with a schema.

use dormouse::jiff::Timestamp;
use dormouse::store::{ApiKey, Audit, Change, MailView, Progress};
use dormouse::{Event, InboxSignal, Instance, Json, Run, Status, Target};
use schemars::JsonSchema;
use serde::Serialize;

/// A page of a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// Pass it as `cursor` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// The status of an instance.
#[derive(Clone, Copy, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Status")]
pub(crate) enum StatusWord {
    Runnable,
    Executing,
    Scheduled,
    AwaitingSignal,
    AwaitingChildren,
    AwaitingCompletion,
    Done,
    Failed,
    Cancelled,
}

impl From<StatusWord> for Status {
    fn from(word: StatusWord) -> Self {
        match word {
            StatusWord::Runnable => Self::Runnable,
            StatusWord::Executing => Self::Executing,
            StatusWord::Scheduled => Self::Scheduled,
            StatusWord::AwaitingSignal => Self::AwaitingSignal,
            StatusWord::AwaitingChildren => Self::AwaitingChildren,
            StatusWord::AwaitingCompletion => Self::AwaitingCompletion,
            StatusWord::Done => Self::Done,
            StatusWord::Failed => Self::Failed,
            StatusWord::Cancelled => Self::Cancelled,
        }
    }
}

/// An instance without its documents.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InstanceSummary {
    pub(crate) id: i64,
    pub(crate) namespace: String,
    pub(crate) machine: String,
    pub(crate) version: u32,
    /// Its key: its business identity.
    pub(crate) key: Option<String>,
    #[schemars(with = "StatusWord")]
    pub(crate) status: Status,
    pub(crate) step: String,
    /// How many transitions it has committed.
    pub(crate) seq: u64,
    /// How often the current step was tried before.
    pub(crate) attempt: u32,
    pub(crate) queue: String,
    /// Its priority; lower runs earlier.
    pub(crate) priority: i32,
    pub(crate) lane: Option<String>,
    /// Its share, if that is not its namespace's own.
    pub(crate) share: Option<String>,
    /// The trace it is part of, as the header `traceparent` writes it.
    pub(crate) trace: Option<String>,
    /// How many starts each of its steps counts as, in a lane with a rate.
    pub(crate) cost: u32,
    /// Whether it waits for its lane.
    pub(crate) lane_blocked: bool,
    /// Whether it is paused.
    pub(crate) paused: bool,
    /// Whether it will be cancelled when its running step ends.
    pub(crate) cancel_requested: bool,
    /// Why it was cancelled, or will be when its running step ends.
    pub(crate) cancel_reason: Option<String>,
    /// The ancestor that was cancelled and took it along.
    pub(crate) cancelled_with: Option<i64>,
    /// The tags that it can be found by, sorted.
    pub(crate) tags: Vec<String>,
    /// The signal names that it is parked on, or was woken by.
    pub(crate) awaits: Vec<String>,
    /// When the clock alone makes it runnable.
    pub(crate) wake_at: Option<Timestamp>,
    /// How many signals are in its inbox.
    pub(crate) inbox: u32,
    /// How many children its barrier still waits for.
    pub(crate) barrier: Option<u32>,
    pub(crate) parent: Option<i64>,
    /// Which of its parent's rounds it belongs to, from 1.
    pub(crate) parent_round: Option<u32>,
    /// Its index in the list that its parent spawned, from 0.
    pub(crate) parent_index: Option<u32>,
    /// The worker that holds it.
    pub(crate) worker: Option<i64>,
    pub(crate) last_error: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) changed_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
}

impl From<Instance> for InstanceSummary {
    fn from(instance: Instance) -> Self {
        Self {
            id: instance.id.0,
            namespace: instance.namespace,
            machine: instance.machine,
            version: instance.version,
            key: instance.key,
            status: instance.status,
            step: instance.step,
            seq: instance.seq,
            attempt: instance.attempt,
            queue: instance.queue,
            priority: instance.priority,
            lane: instance.lane,
            share: instance.share,
            trace: instance.trace.map(String::from),
            cost: instance.cost,
            lane_blocked: instance.lane_blocked,
            paused: instance.paused,
            cancel_requested: instance.cancel_requested,
            cancel_reason: instance.cancel_reason,
            cancelled_with: instance.cancelled_with.map(|id| id.0),
            tags: instance.tags,
            awaits: instance.awaits,
            wake_at: instance.wake_at,
            inbox: instance.inbox,
            barrier: instance.barrier,
            parent: instance.parent.map(|id| id.0),
            parent_round: instance.parent_round,
            parent_index: instance.parent_index,
            worker: instance.worker.map(|worker| worker.0),
            last_error: instance.last_error,
            created_at: instance.created_at,
            changed_at: instance.changed_at,
            ended_at: instance.ended_at,
        }
    }
}

/// An instance with its documents.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Instance")]
pub(crate) struct InstanceView {
    #[serde(flatten)]
    pub(crate) summary: InstanceSummary,
    #[schemars(with = "serde_json::Value")]
    pub(crate) state: Json,
    /// The output, if it is done.
    #[schemars(with = "serde_json::Value")]
    pub(crate) output: Option<Json>,
    /// What its running step last reported.
    pub(crate) progress: Option<ProgressView>,
}

/// Progress that a running step reported.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Progress")]
pub(crate) struct ProgressView {
    pub(crate) instance: i64,
    pub(crate) key: Option<String>,
    pub(crate) machine: String,
    pub(crate) queue: String,
    /// The running step.
    pub(crate) step: String,
    /// The instance's `seq` when the step was claimed.
    pub(crate) seq: u64,
    pub(crate) at: Timestamp,
    #[schemars(with = "serde_json::Value")]
    pub(crate) value: Json,
}

impl From<Progress> for ProgressView {
    fn from(progress: Progress) -> Self {
        let Progress { instance, key, machine, queue, step, seq, at, value, .. } = progress;
        Self { instance: instance.0, key, machine, queue, step, seq, at, value }
    }
}

impl InstanceView {
    pub(crate) fn with_progress(self, progress: Option<Progress>) -> Self {
        Self { progress: progress.map(Into::into), ..self }
    }
}

impl From<Instance> for InstanceView {
    fn from(mut instance: Instance) -> Self {
        let state = std::mem::replace(&mut instance.state, Json::null());
        let output = instance.output.take();
        Self { summary: instance.into(), state, output, progress: None }
    }
}

/// One committed transition.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Event")]
pub(crate) struct EventView {
    /// Its number in the history, from 1.
    pub(crate) seq: u64,
    /// What happened, such as `step.completed`.
    pub(crate) kind: &'static str,
    pub(crate) version: u32,
    /// The step before it: the one that completed, of a `step.completed`. Absent for the first event, and where the one
    /// before was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from_step: Option<String>,
    /// The step afterwards.
    pub(crate) step: String,
    /// The state afterwards.
    #[schemars(with = "serde_json::Value")]
    pub(crate) state: Json,
    /// Details, depending on the kind.
    #[schemars(with = "serde_json::Value")]
    pub(crate) data: Option<Json>,
    pub(crate) at: Timestamp,
    /// The run of the step that led to it; absent if no step did.
    pub(crate) run: Option<RunView>,
}

/// One run of a step.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub(crate) struct RunView {
    /// When it started.
    pub(crate) started_at: Timestamp,
    /// How long it took, in microseconds.
    pub(crate) took_us: u64,
    /// The progress that it last reported.
    #[schemars(with = "serde_json::Value")]
    pub(crate) progress: Option<Json>,
}

/// The step before an event, and the event.
impl From<(Option<String>, Event)> for EventView {
    fn from((from_step, event): (Option<String>, Event)) -> Self {
        let Event { seq, kind, version, step, state, data, at, run } = event;
        let run = run.map(|run| {
            let Run { started_at, took_us, progress } = run;
            RunView { started_at, took_us, progress }
        });
        Self { seq, kind: kind.as_str(), version, from_step, step, state, data, at, run }
    }
}

/// A signal in an instance's inbox.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "InboxSignal")]
pub(crate) struct InboxView {
    pub(crate) id: i64,
    pub(crate) name: String,
    #[schemars(with = "serde_json::Value")]
    pub(crate) payload: Json,
    pub(crate) dedup_key: Option<String>,
    pub(crate) at: Timestamp,
    /// The trace in which it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<String>,
    /// Why its machine cannot read it. Drop or edit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unreadable: Option<String>,
}

/// A signal, and why its machine cannot read it.
impl From<(InboxSignal, Option<String>)> for InboxView {
    fn from((signal, unreadable): (InboxSignal, Option<String>)) -> Self {
        let InboxSignal { id, name, payload, dedup_key, at, trace } = signal;
        let trace = trace.map(String::from);
        Self { id: id.0, name, payload, dedup_key, at, trace, unreadable }
    }
}

/// A piece of mail that is not delivered yet.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MailPiece {
    pub(crate) id: i64,
    /// The event of the sender that sent it.
    pub(crate) seq: u64,
    /// `start`, `signal` or `cancel`.
    pub(crate) kind: String,
    /// The machine to start, or the name of the signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The instance that it is for: its id, or `key:` and its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
    pub(crate) at: Timestamp,
    /// When it is tried next.
    pub(crate) deliver_at: Timestamp,
    /// How often it was put off.
    pub(crate) tries: u32,
    /// Why it cannot be delivered. The sender's history says so as soon as its step has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) undelivered: Option<String>,
}

impl From<MailView> for MailPiece {
    fn from(mail: MailView) -> Self {
        let MailView { id, seq, kind, name, to, at, deliver_at, tries, undelivered, .. } = mail;
        let to = to.map(|to| match to {
            Target::Id(id) => id.to_string(),
            Target::Key(key) => format!("key:{key}"),
        });
        Self { id: id.0, seq, kind, name, to, at, deliver_at, tries, undelivered }
    }
}

/// A transition in the stream of changes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Change")]
pub(crate) struct ChangeView<'a> {
    pub(crate) instance: i64,
    pub(crate) key: Option<&'a str>,
    pub(crate) machine: &'a str,
    pub(crate) queue: &'a str,
    /// What happened, such as `step.completed`.
    pub(crate) kind: &'static str,
    /// The event's number in the instance's history.
    pub(crate) seq: u64,
    /// The step afterwards.
    pub(crate) step: &'a str,
    /// The instance's status when this was sent.
    #[schemars(with = "StatusWord")]
    pub(crate) status: Status,
    pub(crate) at: Timestamp,
}

impl<'a> From<&'a Change> for ChangeView<'a> {
    fn from(change: &'a Change) -> Self {
        Self {
            instance: change.instance.0,
            key: change.key.as_deref(),
            machine: &change.machine,
            queue: &change.queue,
            kind: change.kind.as_str(),
            seq: change.seq,
            step: &change.step,
            status: change.status,
            at: change.at,
        }
    }
}

/// An API key without its secret.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ApiKey")]
pub(crate) struct ApiKeyView {
    pub(crate) id: String,
    pub(crate) label: String,
    pub(crate) namespace: String,
    pub(crate) scope: &'static str,
    /// Whether it is valid now.
    pub(crate) is_live: bool,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) revoked_at: Option<Timestamp>,
}

impl From<ApiKey> for ApiKeyView {
    fn from(key: ApiKey) -> Self {
        let ApiKey { id, label, namespace, scope, created_at, expires_at, revoked_at, is_live, .. } = key;
        let scope = scope.as_str();
        Self { id, label, namespace, scope, is_live, created_at, expires_at, revoked_at }
    }
}

/// An entry of the audit log.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Audit")]
pub(crate) struct AuditView {
    pub(crate) id: i64,
    pub(crate) at: Timestamp,
    pub(crate) who: String,
    pub(crate) what: String,
    pub(crate) target: Option<String>,
    /// `ok`, or why the request was refused.
    pub(crate) result: String,
}

impl From<Audit> for AuditView {
    fn from(Audit { id, at, entry }: Audit) -> Self {
        Self { id, at, who: entry.who, what: entry.what, target: entry.target, result: entry.result }
    }
}
