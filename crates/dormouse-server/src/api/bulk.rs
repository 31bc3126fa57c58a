//! One action on every instance that a query matches, a page at a time. The caller goes on with `next` until there is
//! none: so the work has no limit, can be slowed down, and can be taken up again where it stopped.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Method;
use dormouse::store::Filter;
use dormouse::{Instance, Json, Status};
use futures_util::{StreamExt as _, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::operate::with;
use super::search::ListQuery;
use crate::access::Caller;
use crate::cursor;
use crate::problem::Problem;
use crate::route::{Answer, Call, Parts};
use crate::server::{Act, App};
use crate::view::InstanceSummary;

/// How many requests run at once: enough for the store to commit them in groups.
const AT_A_TIME: usize = 16;
/// How many instances a dry run names, and how many refusals an answer tells.
const EXAMPLES: usize = 10;
/// How many matches, and how many pages of them, a dry run counts.
const COUNTED_MAX: usize = 10_000;
const COUNTED_PAGES_MAX: usize = 20;
const COUNTED_PAGE_ROWS: usize = 1_000;

/// What to do to each instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "BulkVerb")]
pub(crate) enum Verb {
    Signal,
    Cancel,
    Retry,
    Pause,
    Resume,
    Fork,
    Edit,
}

impl Verb {
    pub(crate) const ALL: [Self; 7] =
        [Self::Signal, Self::Cancel, Self::Retry, Self::Edit, Self::Pause, Self::Resume, Self::Fork];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Fork => "fork",
            Self::Edit => "edit",
        }
    }

    pub(crate) fn route(self) -> &'static str {
        match self {
            Self::Signal => "/v1/instances/{instance}/signals",
            Self::Cancel => "/v1/instances/{instance}/cancel",
            Self::Retry => "/v1/instances/{instance}/retry",
            Self::Pause => "/v1/instances/{instance}/pause",
            Self::Resume => "/v1/instances/{instance}/resume",
            Self::Fork => "/v1/instances/{instance}/fork",
            Self::Edit => "/v1/instances/{instance}/edit",
        }
    }

    /// Whether the action applies to an instance in its current status.
    pub(crate) fn fits(self, instance: &Instance) -> bool {
        let has_ended = instance.status.is_terminal();
        match self {
            Self::Signal | Self::Cancel => !has_ended,
            Self::Retry => has_ended && instance.status != Status::Done,
            Self::Pause => !has_ended && !instance.paused,
            Self::Resume => instance.paused,
            Self::Fork => instance.seq > 0,
            Self::Edit => instance.status != Status::Done,
        }
    }
}

/// What to do to every instance that the query matches.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Bulk")]
pub(super) struct BulkBody {
    verb: Verb,
    /// Only count the matches and name some of them. Nothing is changed.
    #[serde(default)]
    dry_run: bool,
    /// The signal, for `signal`.
    signal: Option<SignalBody>,
    /// The reason, for `cancel`.
    #[schemars(length(min = 1, max = 1024))]
    reason: Option<String>,
    /// The step to run from, for `retry` and `fork`.
    step: Option<String>,
    /// Members of the state to replace, for `edit`, `retry` and `fork`.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    set: BTreeMap<String, Json>,
}

/// The signal to send to each.
#[derive(Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BulkSignal")]
struct SignalBody {
    #[schemars(length(min = 1, max = 255))]
    name: String,
    #[serde(default = "Json::null")]
    #[schemars(with = "serde_json::Value")]
    payload: Json,
    /// It makes a repetition of this call a no-op for each instance.
    dedup_key: Option<String>,
}

/// What became of the instances that were looked at.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BulkDone")]
pub(super) struct BulkView {
    /// How many match and are in a status that the action applies to.
    matched: usize,
    /// How many were changed; 0 in a dry run.
    done: usize,
    /// How many refused, mostly because they had moved on.
    refused: usize,
    /// Some of the matches, in a dry run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    examples: Vec<InstanceSummary>,
    /// Some of the refusals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refusals: Vec<RefusalView>,
    /// Pass it as `cursor` to go on; absent when everything was looked at. In a dry run: where it stopped counting.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Why an instance was not changed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BulkRefusal")]
struct RefusalView {
    instance: i64,
    reason: String,
}

pub(super) async fn bulk(call: Call<ListQuery, BulkBody>) -> Result<Answer<BulkView>, Problem> {
    if !call.query.is_narrow() {
        return Err(Problem::invalid(
            "name which instances: a bulk action needs a filter, such as `status` or `machine`",
        ));
    }
    call.body.check()?;
    let filter = call.query.filter()?;
    if call.body.dry_run {
        return Answer::ok(counted(&call.client, filter, call.body.verb).await?);
    }
    let heads_only = call.body.set.is_empty();
    let page = call.client.list(Filter { heads_only, ..filter }).await?;
    let next = cursor::next(&page);
    let meant: Vec<Instance> =
        page.instances.into_iter().filter(|instance| call.body.verb.fits(instance)).collect();
    let matched = meant.len();
    let (app, caller, body) = (call.app, call.caller, Arc::new(call.body));
    let results: Vec<(i64, Result<(), Problem>)> = stream::iter(meant)
        .map(|instance| act(app.clone(), caller.clone(), body.clone(), instance))
        .buffer_unordered(AT_A_TIME)
        .collect()
        .await;
    let done = results.iter().filter(|(_, result)| result.is_ok()).count();
    let refused: Vec<_> = results.into_iter().filter_map(|(id, result)| Some((id, result.err()?))).collect();
    // A server fault concerns all that are left: the caller begins again where this page began.
    if let Some((_, fault)) = refused.iter().find(|(_, problem)| problem.cause.status().is_server_error()) {
        let detail = format!("done for {done} instances, then it failed: {}", fault.detail);
        return Err(Problem { detail, ..fault.clone() });
    }
    let told = |(instance, problem): &(i64, Problem)| RefusalView {
        instance: *instance,
        reason: problem.detail.clone(),
    };
    let refusals = refused.iter().take(EXAMPLES).map(told).collect();
    Answer::ok(BulkView { matched, done, refused: refused.len(), examples: Vec::new(), refusals, next })
}

impl BulkBody {
    /// Refuses what does not belong to the verb, so that a slip is not taken for consent.
    fn check(&self) -> Result<(), Problem> {
        let verb = self.verb;
        let changes = self.step.is_some() || !self.set.is_empty();
        let told = match verb {
            Verb::Signal if self.signal.is_none() => "`signal` is missing: name the signal to send",
            Verb::Edit if self.set.is_empty() => "`set` is missing: name the members of the state to replace",
            Verb::Edit if self.step.is_some() => {
                "an edit leaves an instance at its step: `step` is for `retry` and `fork`"
            }
            Verb::Retry | Verb::Fork | Verb::Edit => "",
            _ if changes => "`step` and `set` are for `retry` and `fork`, and `set` for `edit`",
            _ => "",
        };
        let told = match (verb, &self.signal, &self.reason) {
            _ if !told.is_empty() => told,
            (Verb::Signal, _, None) | (Verb::Cancel, None, _) | (_, None, None) => return Ok(()),
            (_, Some(_), _) => "`signal` is for the verb `signal`",
            (..) => "`reason` is for the verb `cancel`",
        };
        Err(Problem::invalid(told))
    }
}

/// How many match, up to a bound, and some of them.
async fn counted(client: &dormouse::Client, filter: Filter, verb: Verb) -> Result<BulkView, Problem> {
    let mut filter = Filter { limit: COUNTED_PAGE_ROWS, heads_only: true, ..filter };
    let (mut matched, mut examples, mut next) = (0, Vec::new(), None);
    for _ in 0..COUNTED_PAGES_MAX {
        let page = client.list(filter.clone()).await?;
        next = cursor::next(&page);
        (filter.after, filter.after_at) = (page.next, page.next_at);
        let meant = page.instances.into_iter().filter(|instance| verb.fits(instance));
        for instance in meant {
            matched += 1;
            if examples.len() < EXAMPLES {
                examples.push(instance.into());
            }
        }
        if filter.after.is_none() || matched >= COUNTED_MAX {
            break;
        }
    }
    Ok(BulkView { matched, done: 0, refused: 0, examples, refusals: Vec::new(), next })
}

/// Runs the route of the verb for one instance, with its entry in the audit log.
async fn act(
    app: Arc<App>,
    caller: Caller,
    body: Arc<BulkBody>,
    instance: Instance,
) -> (i64, Result<(), Problem>) {
    let id = instance.id.0;
    let asked = match request(&body, &instance) {
        Ok(asked) => asked,
        Err(problem) => return (id, Err(problem)),
    };
    let parts = Parts { path: vec![("instance".to_owned(), id.to_string())], ..Parts::default() };
    let act =
        Act { method: Method::POST, path: body.verb.route(), parts, query: String::new(), body: Some(asked) };
    (id, app.act(&caller, act).await.map(drop))
}

/// The body of the request for one instance. What was seen is what is changed: an edit, a retry and a fork name the `seq`.
fn request(body: &BulkBody, instance: &Instance) -> Result<String, Problem> {
    let state = match body.set.is_empty() {
        true => None,
        false => Some(with(&instance.state, &body.set)?),
    };
    let seq = instance.seq;
    #[derive(Serialize)]
    struct Changed<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        expected_seq: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        step: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<Json>,
    }
    let step = body.step.as_deref();
    let text = match body.verb {
        Verb::Signal => serde_json::to_string(&body.signal),
        Verb::Cancel => serde_json::to_string(&json!({ "reason": body.reason })),
        Verb::Edit => {
            serde_json::to_string(&Changed { seq: None, expected_seq: Some(seq), step: None, state })
        }
        Verb::Retry => serde_json::to_string(&Changed { seq: None, expected_seq: Some(seq), step, state }),
        Verb::Fork => serde_json::to_string(&Changed { seq: Some(seq), expected_seq: None, step, state }),
        Verb::Pause | Verb::Resume => Ok("{}".to_owned()),
    };
    text.map_err(|error| Problem::invalid(error.to_string()))
}
