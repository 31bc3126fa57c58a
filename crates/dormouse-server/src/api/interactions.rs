//! Routes that list, claim and answer interactions.

use std::time::Duration;

use dormouse::jiff::Timestamp;
use dormouse::store::{Assigned, Completed, Completion, InteractionFilter, Portion, Refusal, Which};
use dormouse::{Error, InstanceId, Interaction, InteractionId, InteractionStatus, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::instances::limit;
use super::start::check_batch;
use crate::access::Caller;
use crate::body::Object;
use crate::cursor::{self, List};
use crate::problem::{Cause, Problem};
use crate::route::{Answer, Call, Nothing};
use crate::view::Page;

/// Which interactions to list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InteractionsQuery {
    status: Option<InteractionStatusWord>,
    transport: Option<String>,
    machine: Option<String>,
    /// Only interactions whose answer goes to this step.
    step: Option<String>,
    /// Only interactions of this instance.
    instance: Option<i64>,
    /// Only interactions addressed to this person or program, or currently claimed by them.
    assignee: Option<String>,
    /// Only interactions addressed to this group.
    group: Option<String>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// At most this many; 50 by default, up to 500.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

/// The status of an interaction.
#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "InteractionStatus")]
enum InteractionStatusWord {
    Pending,
    Dispatched,
    Completed,
    TimedOut,
    Failed,
    Cancelled,
}

impl From<InteractionStatusWord> for InteractionStatus {
    fn from(word: InteractionStatusWord) -> Self {
        match word {
            InteractionStatusWord::Pending => Self::Pending,
            InteractionStatusWord::Dispatched => Self::Dispatched,
            InteractionStatusWord::Completed => Self::Completed,
            InteractionStatusWord::TimedOut => Self::TimedOut,
            InteractionStatusWord::Failed => Self::Failed,
            InteractionStatusWord::Cancelled => Self::Cancelled,
        }
    }
}

/// One request that an instance waits for.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Interaction")]
pub(super) struct InteractionView {
    id: i64,
    /// The instance that asks.
    instance: i64,
    machine: String,
    /// The machine version that asked.
    version: u32,
    /// The step that will receive the answer.
    step: String,
    /// Its index among the requests of its unit, from 0.
    item: u32,
    transport: String,
    #[schemars(with = "InteractionStatusWord")]
    status: InteractionStatus,
    /// The id that an answer carries.
    correlation_id: Option<String>,
    /// How often its transport has sent it.
    sends: u32,
    /// When it could first be answered.
    opened_at: Option<Timestamp>,
    /// When it must be answered.
    deadline: Option<Timestamp>,
    resolved_at: Option<Timestamp>,
    /// The person or program that it is addressed to.
    for_assignee: Option<String>,
    /// The group that it is addressed to.
    for_group: Option<String>,
    /// The trace of the instance that asks, for whoever answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    /// Who has claimed it in order to answer it.
    assignee: Option<String>,
    assigned_until: Option<Timestamp>,
    /// Who answered, if known: a name, `resume token`, or the transport.
    answered_by: Option<String>,
    /// The request's input.
    #[schemars(with = "serde_json::Value")]
    request: Json,
    /// The answer.
    #[schemars(with = "Option<serde_json::Value>")]
    output: Option<Json>,
    error: Option<String>,
}

impl From<Interaction> for InteractionView {
    fn from(interaction: Interaction) -> Self {
        Self {
            id: interaction.id.0,
            instance: interaction.instance.0,
            machine: interaction.machine,
            version: interaction.version,
            step: interaction.step,
            item: interaction.item,
            transport: interaction.transport,
            status: interaction.status,
            correlation_id: interaction.correlation_id,
            sends: interaction.sends,
            opened_at: interaction.opened_at,
            deadline: interaction.deadline,
            resolved_at: interaction.resolved_at,
            for_assignee: interaction.for_assignee,
            for_group: interaction.for_group,
            trace: interaction.trace.map(String::from),
            assignee: interaction.assignee,
            assigned_until: interaction.assigned_until,
            answered_by: interaction.answered_by,
            request: interaction.request,
            output: interaction.output,
            error: interaction.error,
        }
    }
}

pub(super) async fn list(call: Call<InteractionsQuery>) -> Result<Answer<Page<InteractionView>>, Problem> {
    let query = call.query;
    let limit = limit(query.limit)?;
    let after = query.cursor.map(|cursor| cursor::decode(List::Interactions, &cursor)).transpose()?;
    let filter = InteractionFilter {
        namespace: None,
        status: query.status.map(Into::into),
        transport: query.transport,
        machine: query.machine,
        step: query.step,
        instance: query.instance.map(InstanceId),
        assignee: query.assignee,
        group: query.group,
        opened_before: None,
        after: after.map(InteractionId),
        limit,
    };
    let Portion { items, more } = call.client.interactions(filter).await?;
    let next = items.last().filter(|_| more).map(|last| cursor::encode(List::Interactions, last.id.0));
    Answer::ok(Page { items: items.into_iter().map(Into::into).collect(), next })
}

pub(super) async fn get(call: Call) -> Result<Answer<InteractionView>, Problem> {
    let which = which(&call)?;
    let found = call.client.interaction(which).await?;
    Answer::ok(found.ok_or_else(unknown)?.into())
}

/// Who claims it, and for how long.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ClaimInteraction")]
pub(super) struct ClaimBody {
    #[schemars(length(min = 1, max = 255))]
    assignee: String,
    /// For this long; 0 releases it.
    #[schemars(range(max = 86400))]
    seconds: u32,
}

/// Who has claimed it now.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ClaimedInteraction")]
pub(super) struct ClaimedView {
    assignee: String,
    until: Timestamp,
}

pub(super) async fn claim(call: Call<Nothing, ClaimBody>) -> Result<Answer<ClaimedView>, Problem> {
    let found = call.client.interaction(which(&call)?).await?.ok_or_else(unknown)?;
    let ClaimBody { assignee, seconds } = call.body;
    let lease = Duration::from_secs(seconds.min(86_400).into());
    match call.client.claim_interaction(found.id, &assignee, lease).await? {
        Assigned::Until(until) => Answer::ok(ClaimedView { assignee, until }),
        Assigned::Taken { by, until } => {
            let told = format!("{by} has claimed it until {until}");
            Err(Problem::new(Cause::CompletionRefused, told).with("reason", "claimed"))
        }
        Assigned::NotOpen => {
            Err(Problem::new(Cause::CompletionRefused, "the interaction is closed").with("reason", "late"))
        }
    }
}

/// The answer.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CompleteInteraction")]
pub(super) struct CompleteBody {
    #[serde(default = "Json::null")]
    #[schemars(with = "serde_json::Value")]
    output: Json,
    /// Who answers; must be the claimant if it is claimed. By default, the caller is recorded.
    assignee: Option<String>,
}

/// A failure instead of an answer.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FailInteraction")]
pub(super) struct FailBody {
    reason: String,
    /// Who answers; must be the claimant if it is claimed. By default, the caller is recorded.
    assignee: Option<String>,
}

/// The result of an answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Completed")]
pub(super) struct CompletedView {
    completed: CompletedWord,
    /// Whether it woke the instance.
    woke: bool,
    /// The first answer, if this is a repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Value")]
    output: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CompletedWord {
    /// This answer was accepted.
    Admitted,
    /// It had been answered before; nothing was changed.
    Repeat,
}

pub(super) async fn complete(call: Call<Nothing, CompleteBody>) -> Result<Answer<CompletedView>, Problem> {
    let to = which(&call)?;
    let CompleteBody { output, assignee } = call.body;
    let by = by(&call.caller, assignee.as_ref());
    answer(Completion { assignee, by, ..call.client.completion(to, Ok(output)) }, &call.client).await
}

pub(super) async fn fail(call: Call<Nothing, FailBody>) -> Result<Answer<CompletedView>, Problem> {
    let to = which(&call)?;
    let FailBody { reason, assignee } = call.body;
    let by = by(&call.caller, assignee.as_ref());
    answer(Completion { assignee, by, ..call.client.completion(to, Err(reason)) }, &call.client).await
}

/// Who is recorded as having answered: the one the request names, or else the caller.
fn by(caller: &Caller, assignee: Option<&String>) -> Option<String> {
    Some(assignee.unwrap_or(&caller.who).clone())
}

async fn answer(completion: Completion, client: &dormouse::Client) -> Result<Answer<CompletedView>, Problem> {
    let to = completion.to.clone();
    let completed = client.complete_many(vec![completion]).await?.pop().expect("one completion, one answer");
    Answer::ok(told(completed.admitted(to)?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CompleteInteractions")]
pub(super) struct BatchBody {
    #[schemars(with = "Vec<AnswerBody>", length(max = 1000))]
    answers: Vec<Object<AnswerBody>>,
}

/// An answer and its interaction: an output, or an error that says why there is none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AddressedAnswer")]
struct AnswerBody {
    interaction: WhichBody,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "serde_json::Value")]
    output: Option<Json>,
    error: Option<String>,
    /// Who answers; must be the claimant if it is claimed. By default, the caller is recorded.
    assignee: Option<String>,
}

/// An interaction's id, or `correlation:` and its correlation id.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Which")]
enum WhichBody {
    Id(i64),
    Text(String),
}

/// The result of each answer, in order.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CompletedMany")]
pub(super) struct BatchView {
    results: Vec<AnswerView>,
}

/// The result of one answer in a batch.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "CompletedOrRefused")]
enum AnswerView {
    Completed(CompletedView),
    Refused(RefusedView),
}

/// Why an answer was refused.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Refused")]
struct RefusedView {
    /// The `type` of the problem that a single answer would get.
    r#type: String,
    /// The reason in a word: as for a single answer, or `unknown`.
    reason: String,
    detail: String,
}

pub(super) async fn many(call: Call<Nothing, BatchBody>) -> Result<Answer<BatchView>, Problem> {
    check_batch(call.body.answers.len())?;
    let mut batch = Vec::with_capacity(call.body.answers.len());
    for (index, Object(answer)) in call.body.answers.into_iter().enumerate() {
        let to = match answer.interaction {
            WhichBody::Id(id) => Which::Id(InteractionId(id)),
            WhichBody::Text(text) => parse_which(&text)?,
        };
        let result = output_or_error(answer.output, answer.error)
            .map_err(|told| Problem::invalid(format!("entry {index}: {told}")))?;
        let by = by(&call.caller, answer.assignee.as_ref());
        batch.push(Completion { assignee: answer.assignee, by, ..call.client.completion(to, result) });
    }
    let named: Vec<Which> = batch.iter().map(|completion| completion.to.clone()).collect();
    let completed = call.client.complete_many(batch).await?;
    let results = completed.into_iter().zip(named).map(|(completed, to)| match completed {
        Completed::Refused(refusal) => AnswerView::refused(to, refusal, None),
        Completed::Unfit { refusal, reason } => AnswerView::refused(to, refusal, Some(reason)),
        completed => AnswerView::Completed(told(completed)),
    });
    Answer::ok(BatchView { results: results.collect() })
}

impl AnswerView {
    fn refused(to: Which, refusal: Refusal, reason: Option<String>) -> Self {
        // An interaction of another namespace looks like one that never existed.
        let refusal = if refusal == Refusal::OtherNamespace { Refusal::Unknown } else { refusal };
        let detail = reason
            .as_ref()
            .map_or_else(|| refusal.told().to_owned(), |reason| format!("{}: {reason}", refusal.told()));
        let problem = match refusal {
            Refusal::Busy => Problem::new(Cause::Unavailable, detail.as_str()),
            refusal => Error::CompletionRefused { to, refusal, reason }.into(),
        };
        let r#type = problem.kind();
        Self::Refused(RefusedView { r#type, reason: refusal.to_string(), detail })
    }
}

/// The content of an answer.
fn output_or_error(
    output: Option<Json>,
    error: Option<String>,
) -> Result<Result<Json, String>, &'static str> {
    match (output, error) {
        (Some(output), None) => Ok(Ok(output)),
        (None, Some(reason)) => Ok(Err(reason)),
        _ => Err("give an `output`, or an `error` that says why there is none"),
    }
}

/// The answer of a token's holder: an output, or an error that says why there is none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Resume")]
pub(super) struct ResumeBody {
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "serde_json::Value")]
    output: Option<Json>,
    error: Option<String>,
}

/// An output of `null` counts as an output.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

pub(super) async fn resume(call: Call<Nothing, ResumeBody>) -> Result<Answer<CompletedView>, Problem> {
    let token = call.parts.token.clone().expect("nobody comes here without a token");
    let result =
        output_or_error(call.body.output.clone(), call.body.error.clone()).map_err(Problem::invalid)?;
    match call.client.complete_opened(token, result).await? {
        repeat @ Completed::Repeat(_) => Answer::unchanged(told(repeat)),
        completed => Answer::ok(told(completed)),
    }
}

fn told(completed: Completed) -> CompletedView {
    let view = |completed, woke, output, error| CompletedView { completed, woke, output, error };
    match completed {
        Completed::Admitted { woke } => view(CompletedWord::Admitted, woke, None, None),
        Completed::Repeat(Ok(output)) => view(CompletedWord::Repeat, false, Some(output), None),
        Completed::Repeat(Err(error)) => view(CompletedWord::Repeat, false, None, Some(error)),
        Completed::Refused(_) | Completed::Unfit { .. } => unreachable!("these are errors"),
    }
}

/// The interaction that the path names: its id, or `correlation:` and its correlation id.
fn which<Q, B>(call: &Call<Q, B>) -> Result<Which, Problem> {
    parse_which(call.path("interaction"))
}

fn parse_which(text: &str) -> Result<Which, Problem> {
    if let Some(id) = text.strip_prefix("correlation:") {
        return Ok(Which::Correlation(id.to_owned()));
    }
    text.parse().map(|id| Which::Id(InteractionId(id))).map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        Problem::invalid(format!(
            "{shown:?} names no interaction: write its id, or `correlation:` followed by its correlation id"
        ))
    })
}

fn unknown() -> Problem {
    Problem::new(Cause::NotFound, "there is no such interaction")
}
