//! Operating on instances and queues.

use dormouse::store::Cancel;
use dormouse::{At, Error, Json, PauseCall, PauseQueueCall, Status, TagCall};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::route::{Answer, Call, Nothing};
use crate::view::StatusWord;

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

/// Why to cancel it, and from where on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Cancel")]
pub(super) struct CancelBody {
    /// Kept with the instance and in its history, and with all that are cancelled with it.
    #[schemars(length(min = 1, max = 1024))]
    reason: Option<String>,
    /// Only if it is at this `seq`; else it is left alone.
    expected_seq: Option<u64>,
}

pub(super) async fn cancel(call: Call<Nothing, CancelBody>) -> Result<Answer<CancelView>, Problem> {
    let mut cancel = call.client.cancel(call.target()?);
    if let Some(reason) = call.body.reason {
        cancel = cancel.reason(reason);
    }
    if let Some(seq) = call.body.expected_seq {
        cancel = cancel.expected_seq(seq);
    }
    let (cancel, descendants, status) = match cancel.await? {
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
    pub(super) id: i64,
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
    /// Only if it is at this `seq`; else it is left alone.
    expected_seq: Option<u64>,
}

pub(super) async fn retry(call: Call<Nothing, RetryBody>) -> Result<Answer<InstanceRef>, Problem> {
    let target = call.target()?;
    let retry = match (call.body.step, call.body.state) {
        (None, None) => call.client.retry(target),
        (step, state) => {
            let instance = call.client.get(target.clone()).await?.ok_or(Error::NotFound(target))?;
            let at =
                At { step: step.unwrap_or(instance.step).into(), state: state.unwrap_or(instance.state) };
            call.client.retry_raw(instance.id, at)
        }
    };
    let id = match call.body.expected_seq {
        Some(seq) => retry.expected_seq(seq).await?,
        None => retry.await?,
    };
    Answer::ok(InstanceRef { id: id.0 })
}

/// From where on to brake it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Brake")]
pub(super) struct BrakeBody {
    /// Only if it is at this `seq`; else it is left alone.
    expected_seq: Option<u64>,
}

pub(super) async fn pause(call: Call<Nothing, BrakeBody>) -> Result<Answer<InstanceRef>, Problem> {
    brake(call.client.pause(call.target()?), &call.body).await
}

pub(super) async fn resume(call: Call<Nothing, BrakeBody>) -> Result<Answer<InstanceRef>, Problem> {
    brake(call.client.resume(call.target()?), &call.body).await
}

async fn brake(pause: PauseCall<'_>, body: &BrakeBody) -> Result<Answer<InstanceRef>, Problem> {
    let id = match body.expected_seq {
        Some(seq) => pause.expected_seq(seq).await?,
        None => pause.await?,
    };
    Answer::ok(InstanceRef { id: id.0 })
}

/// Tags to add and to remove.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TagChange")]
pub(super) struct TagBody {
    #[serde(default)]
    #[schemars(length(max = 8), inner(length(min = 1, max = 64)))]
    add: Vec<String>,
    #[serde(default)]
    #[schemars(length(max = 8), inner(length(min = 1, max = 64)))]
    remove: Vec<String>,
}

/// The tags that an instance has now.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Tags")]
pub(super) struct TagsView {
    /// In order.
    tags: Vec<String>,
}

pub(super) async fn tag(call: Call<Nothing, TagBody>) -> Result<Answer<TagsView>, Problem> {
    let tag = call.client.tag(call.target()?);
    let tag = call.body.add.into_iter().fold(tag, TagCall::add);
    let tag = call.body.remove.into_iter().fold(tag, TagCall::remove);
    Answer::ok(TagsView { tags: tag.await? })
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
    /// Other tags than this one has.
    #[schemars(length(max = 8), inner(length(min = 1, max = 64)))]
    tags: Option<Vec<String>>,
}

pub(super) async fn fork(call: Call<Nothing, ForkBody>) -> Result<Answer<InstanceRef>, Problem> {
    let target = call.target()?;
    let ForkBody { seq, key, step, state, queue, tags } = call.body;
    let forked = call.client.fork(target, seq, |mut new| {
        new.key = key;
        new.at.step = step.map_or(new.at.step, Into::into);
        new.at.state = state.unwrap_or(new.at.state);
        new.queue = queue.unwrap_or(new.queue);
        new.tags = tags.unwrap_or(new.tags);
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

/// Which queues to brake.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BrakeQueue")]
pub(super) struct BrakeQueueBody {
    /// Also one that no machine, worker or instance names.
    #[serde(default)]
    even_if_unknown: bool,
}

type OfQueue = Call<Nothing, BrakeQueueBody>;

pub(super) async fn pause_queue(call: OfQueue) -> Result<Answer<QueueBrake>, Problem> {
    let queue = call.path("queue").to_owned();
    brake_queue(call.client.pause_queue(&*queue), &call.body).await?;
    Answer::ok(QueueBrake { queue, paused: true })
}

pub(super) async fn resume_queue(call: OfQueue) -> Result<Answer<QueueBrake>, Problem> {
    let queue = call.path("queue").to_owned();
    brake_queue(call.client.resume_queue(&*queue), &call.body).await?;
    Answer::ok(QueueBrake { queue, paused: false })
}

async fn brake_queue(brake: PauseQueueCall<'_>, body: &BrakeQueueBody) -> Result<(), Problem> {
    let brake = if body.even_if_unknown { brake.even_if_unknown() } else { brake };
    Ok(brake.await?)
}
