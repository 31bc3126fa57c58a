//! Routes that operate on instances and queues.

use std::collections::BTreeMap;

use dormouse::store::Cancel;
use dormouse::{At, Error, Json, PauseCall, PauseQueueCall, Status, TagCall};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::problem::Problem;
use crate::route::{Answer, Call, Nothing};
use crate::view::StatusWord;

/// The result of a cancel.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Cancelled")]
pub(super) struct CancelView {
    cancel: CancelWord,
    /// How many descendants were cancelled with it.
    descendants: usize,
    /// How it had ended, if it had ended before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StatusWord")]
    status: Option<Status>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CancelWord {
    /// It is cancelled.
    Done,
    /// It will end when its running step ends, or after it has undone its work.
    Requested,
    /// It had ended before.
    AlreadyEnded,
}

/// The reason and the condition of a cancel.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Cancel")]
pub(super) struct CancelBody {
    /// The reason; stored with the instance, in its history, and with every instance that is cancelled with it.
    #[schemars(length(min = 1, max = 1024))]
    reason: Option<String>,
    /// Change it only if it is at this `seq`.
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

/// The instance that was changed or created.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "InstanceRef")]
pub(super) struct InstanceRef {
    pub(super) id: i64,
}

/// Where to run it again; by default its own step with its own state.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Retry")]
pub(super) struct RetryBody {
    step: Option<String>,
    /// The state of that step.
    #[schemars(with = "serde_json::Value")]
    state: Option<Json>,
    /// Change it only if it is at this `seq`.
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

/// The new state of an instance, which stays where it is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Edit")]
pub(super) struct EditBody {
    /// The whole state.
    #[schemars(with = "serde_json::Value")]
    state: Option<Json>,
    /// Members of the state to replace; the others stay.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    set: BTreeMap<String, Json>,
    /// Change it only if it is at this `seq`.
    expected_seq: Option<u64>,
}

pub(super) async fn edit(call: Call<Nothing, EditBody>) -> Result<Answer<InstanceRef>, Problem> {
    let target = call.target()?;
    let EditBody { state, set, expected_seq } = call.body;
    let (state, expected_seq) = match (state, set.is_empty()) {
        (Some(state), true) => (state, expected_seq),
        (None, false) => {
            let found = call.client.get(target.clone()).await?.ok_or(Error::NotFound(target.clone()))?;
            (with(&found.state, &set)?, Some(expected_seq.unwrap_or(found.seq)))
        }
        _ => return Err(Problem::invalid("give `state`, the whole state, or `set`, members of it")),
    };
    let edit = call.client.edit_state(target, state);
    let id = match expected_seq {
        Some(seq) => edit.expected_seq(seq).await?,
        None => edit.await?,
    };
    Answer::ok(InstanceRef { id: id.0 })
}

/// A state with some of its members replaced. The others stay as they are written.
pub(super) fn with(state: &Json, set: &BTreeMap<String, Json>) -> Result<Json, Problem> {
    let Ok(mut members) = state.decode::<BTreeMap<String, Box<RawValue>>>("state") else {
        return Err(Problem::invalid("its state has no members that `set` could replace"));
    };
    for (name, value) in set {
        let value = RawValue::from_string(value.as_str().to_owned());
        members.insert(name.clone(), value.map_err(|error| Problem::invalid(error.to_string()))?);
    }
    Ok(Json::encode("state", &members)?)
}

/// The condition of a pause or resume.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Brake")]
pub(super) struct BrakeBody {
    /// Change it only if it is at this `seq`.
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

/// The tags of an instance after the change.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Tags")]
pub(super) struct TagsView {
    /// The tags, sorted.
    tags: Vec<String>,
}

pub(super) async fn tag(call: Call<Nothing, TagBody>) -> Result<Answer<TagsView>, Problem> {
    let tag = call.client.tag(call.target()?);
    let tag = call.body.add.into_iter().fold(tag, TagCall::add);
    let tag = call.body.remove.into_iter().fold(tag, TagCall::remove);
    Answer::ok(TagsView { tags: tag.await? })
}

/// From which event to start a new instance, and what to change in it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Fork")]
pub(super) struct ForkBody {
    /// The event's `seq` in the history.
    seq: u64,
    /// A key for the new instance; it does not inherit one.
    key: Option<String>,
    /// A step, instead of the one after that event.
    step: Option<String>,
    /// A state, instead of the one after that event.
    #[schemars(with = "serde_json::Value")]
    state: Option<Json>,
    /// A queue, instead of the original's.
    queue: Option<String>,
    /// Tags, instead of the original's.
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

/// A queue, and whether it is paused.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "QueueBrake")]
pub(super) struct QueueBrake {
    queue: String,
    paused: bool,
}

/// Which queues may be paused or resumed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BrakeQueue")]
pub(super) struct BrakeQueueBody {
    /// Accept a queue that no machine, worker or instance names.
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

/// The weight of a share.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WeighShare")]
pub(super) struct WeighBody {
    /// How many rows it is served in each of its turns, from 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    weight: u32,
}

/// A share and its weight.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Share")]
pub(super) struct ShareView {
    /// Its name; the namespace's own share has the name of the namespace.
    pub(super) share: String,
    /// How many rows it is served in each of its turns.
    pub(super) weight: u32,
}

pub(super) async fn weigh_share(call: Call<Nothing, WeighBody>) -> Result<Answer<ShareView>, Problem> {
    let (share, weight) = (call.path("share").to_owned(), call.body.weight);
    call.client.weigh_share(&*share, weight).await?;
    Answer::ok(ShareView { share, weight })
}

async fn brake_queue(brake: PauseQueueCall<'_>, body: &BrakeQueueBody) -> Result<(), Problem> {
    let brake = if body.even_if_unknown { brake.even_if_unknown() } else { brake };
    Ok(brake.await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_state_are_replaced_and_the_others_stay_as_written() {
        let state = Json::parse("state", r#"{"a":1.50,"b":2}"#).expect("JSON");
        let set = BTreeMap::from([("b".to_owned(), Json::from(serde_json::json!({ "x": [] })))]);
        assert_eq!(with(&state, &set).expect("an object").as_str(), r#"{"a":1.50,"b":{"x":[]}}"#);
        assert!(with(&Json::from(serde_json::json!(3)), &set).is_err());
    }
}
