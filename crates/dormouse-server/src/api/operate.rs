//! Operating on instances and queues.

use dormouse::store::Cancel;
use dormouse::{At, Error, Json, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::route::{Answer, Call, Nothing};
use crate::view::StatusWord;

type Plain = Call<Nothing, Nothing>;

/// What became of a cancellation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Cancelled")]
pub(super) struct CancelView {
    cancel: CancelWord,
    /// How many descendants were cancelled with it.
    descendants: usize,
    /// How it had ended before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StatusWord")]
    status: Option<Status>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CancelWord {
    /// It is cancelled.
    Done,
    /// It will end: when the step that is running does, or when it has undone what it did.
    Requested,
    /// It had ended before.
    AlreadyEnded,
}

pub(super) async fn cancel(call: Plain) -> Result<Answer<CancelView>, Problem> {
    let (cancel, descendants, status) = match call.client.cancel(call.target()?).await? {
        Cancel::Done { descendants } => (CancelWord::Done, descendants, None),
        Cancel::Requested => (CancelWord::Requested, 0, None),
        Cancel::AlreadyEnded(status) => (CancelWord::AlreadyEnded, 0, Some(status)),
    };
    Answer::ok(CancelView { cancel, descendants, status })
}

/// The instance that was operated on, or made.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "InstanceRef")]
pub(super) struct InstanceRef {
    id: i64,
}

/// Where to run it again; from its own step with its own state unless set.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Retry")]
pub(super) struct RetryBody {
    step: Option<String>,
    /// The state of that step.
    #[schemars(with = "serde_json::Value")]
    state: Option<Json>,
}

pub(super) async fn retry(call: Call<Nothing, RetryBody>) -> Result<Answer<InstanceRef>, Problem> {
    let target = call.target()?;
    let id = match (call.body.step, call.body.state) {
        (None, None) => call.client.retry(target).await?,
        (step, state) => {
            let instance = call.client.get(target.clone()).await?.ok_or(Error::NotFound(target))?;
            let at =
                At { step: step.unwrap_or(instance.step).into(), state: state.unwrap_or(instance.state) };
            call.client.retry_raw(instance.id, at).await?
        }
    };
    Answer::ok(InstanceRef { id: id.0 })
}

pub(super) async fn pause(call: Plain) -> Result<Answer<InstanceRef>, Problem> {
    Answer::ok(InstanceRef { id: call.client.pause(call.target()?).await?.0 })
}

pub(super) async fn resume(call: Plain) -> Result<Answer<InstanceRef>, Problem> {
    Answer::ok(InstanceRef { id: call.client.resume(call.target()?).await?.0 })
}

/// From which event to start another instance, and what of it to change.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Fork")]
pub(super) struct ForkBody {
    /// The event's number in the history.
    seq: u64,
    /// A key for the new instance; it takes none along.
    key: Option<String>,
    /// Another step than after that event.
    step: Option<String>,
    /// Another state than after that event.
    #[schemars(with = "serde_json::Value")]
    state: Option<Json>,
    /// Another queue.
    queue: Option<String>,
}

pub(super) async fn fork(call: Call<Nothing, ForkBody>) -> Result<Answer<InstanceRef>, Problem> {
    let target = call.target()?;
    let ForkBody { seq, key, step, state, queue } = call.body;
    let forked = call.client.fork(target, seq, |mut new| {
        new.key = key;
        new.at.step = step.map_or(new.at.step, Into::into);
        new.at.state = state.unwrap_or(new.at.state);
        new.queue = queue.unwrap_or(new.queue);
        new
    });
    let id = forked.await?;
    let (origin_path, _) =
        call.parts.full_path.trim_end_matches("/fork").rsplit_once('/').unwrap_or_default();
    Answer::created(format!("{origin_path}/{id}"), InstanceRef { id: id.0 })
}

/// A queue and its brake.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "QueueBrake")]
pub(super) struct QueueBrake {
    queue: String,
    paused: bool,
}

pub(super) async fn pause_queue(call: Plain) -> Result<Answer<QueueBrake>, Problem> {
    let queue = call.path("queue").to_owned();
    call.client.pause_queue(&queue).await?;
    Answer::ok(QueueBrake { queue, paused: true })
}

pub(super) async fn resume_queue(call: Plain) -> Result<Answer<QueueBrake>, Problem> {
    let queue = call.path("queue").to_owned();
    call.client.resume_queue(&queue).await?;
    Answer::ok(QueueBrake { queue, paused: false })
}
