//! Routes that start instances.

use std::collections::HashMap;

use dormouse::jiff::Timestamp;
use dormouse::{At, Client, Declaration, Delivered, History, Inserted, Json, KeyScope, NewInstance, When};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::signals::{DeliveredView, SignalBody};
use crate::access::Caller;
use crate::body::Object;
use crate::problem::{Cause, Problem};
use crate::route::{Answer, Call, Nothing};
use crate::sight::{self, Sight};
use crate::span::{self, SPAN_PATTERN};
use crate::view::StatusWord;

/// The most entries in one batch.
pub(super) const BATCH_MAX: usize = 1_000;

/// An instance to start.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewInstance")]
pub(super) struct StartBody {
    /// The machine's name.
    #[schemars(length(min = 1, max = 255))]
    machine: String,
    /// The version of its code; by default the newest known one.
    version: Option<u32>,
    /// The step to start at; optional for a flow, a job, and a machine that declares its graph.
    step: Option<String>,
    /// The state that the step needs.
    #[serde(default = "Json::null")]
    #[schemars(with = "serde_json::Value")]
    state: Json,
    /// Its business identity. No other instance can have the key while this one is live, unless `key_scope` says
    /// otherwise.
    key: Option<String>,
    key_scope: Option<KeyScopeBody>,
    /// Its queue; by default the machine's own.
    queue: Option<String>,
    /// Its priority; lower runs earlier.
    #[serde(default)]
    priority: i32,
    /// Its lane. Steps of instances in the same lane run one at a time.
    lane: Option<String>,
    /// Its share; by default its namespace's own. Work of one queue and priority is served by turns of its shares.
    share: Option<String>,
    /// The trace it is part of, as the header `traceparent` writes it; by default that of the request.
    trace: Option<String>,
    /// How many starts each of its steps counts as, in a lane with a rate; 1 by default.
    #[schemars(range(min = 1, max = 1_000_000))]
    cost: Option<u32>,
    /// Tags to find it by; its children do not inherit them.
    #[serde(default)]
    #[schemars(length(max = 8), inner(length(min = 1, max = 64)))]
    tags: Vec<String>,
    /// When it may first run.
    start_at: Option<Timestamp>,
    /// The delay before it may first run, such as `5m`.
    #[schemars(extend("pattern" = SPAN_PATTERN))]
    start_in: Option<String>,
    /// Whether its transitions are recorded.
    history: Option<bool>,
    /// Start it even if no worker has declared its machine; it waits until one does.
    #[serde(default)]
    even_if_unknown: bool,
    /// Signals for its inbox. If its key is taken, the holder receives them.
    #[serde(default)]
    #[schemars(with = "Vec<SignalBody>")]
    signals: Vec<Object<SignalBody>>,
}

/// How long a key counts as taken.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "KeyScope")]
enum KeyScopeBody {
    Named(NamedScope),
    In(Vec<StatusWord>),
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum NamedScope {
    /// Until it ends.
    Live,
    /// As long as it exists.
    Always,
}

/// The result of a start.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Started")]
pub(super) struct StartedView {
    /// The instance: the new one, or the one that holds the key.
    id: i64,
    /// Whether this request created it.
    created: bool,
    /// The result of each signal, if the key was taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    signals: Vec<DeliveredView>,
}

pub(super) async fn one(call: Call<Nothing, StartBody>) -> Result<Answer<StartedView>, Problem> {
    let (key, has_signals) = (call.body.key.clone(), !call.body.signals.is_empty());
    let trace = call.trace();
    let (caller, client) = (&call.caller, &call.client);
    let mut new = call.body.into_new(caller, client, &mut Versions::default()).await?;
    new.trace = new.trace.or(trace);
    let inserted = match client.start_many([new]).await {
        Ok(mut inserted) => inserted.pop().expect("one instance, one answer"),
        Err(error) => return Err(sight::refused(error, caller, client).await),
    };
    match inserted {
        Inserted::New(id) => {
            Answer::created(format!("{}/{id}", call.parts.full_path), StartedView::of(Inserted::New(id)))
        }
        Inserted::Taken { ref signals, holder } if has_signals => {
            if signals.contains(&Delivered::NoTarget) {
                let told =
                    format!("the key is held by instance {holder}, which has ended and accepts no signals");
                return Err(Problem::new(Cause::KeyTaken, told).with("holder", holder.0));
            }
            if signals.contains(&Delivered::InboxFull) {
                return Err(dormouse::Error::InboxFull(holder.into()).into());
            }
            Answer::ok(StartedView::of(inserted))
        }
        Inserted::Taken { holder, .. } => {
            Err(dormouse::Error::KeyTaken { key: key.unwrap_or_default(), holder }.into())
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewInstances")]
pub(super) struct BatchBody {
    #[schemars(with = "Vec<StartBody>", length(max = 1000))]
    instances: Vec<Object<StartBody>>,
}

/// The result of each entry, in order.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StartedMany")]
pub(super) struct BatchView {
    results: Vec<StartedView>,
}

pub(super) async fn many(call: Call<Nothing, BatchBody>) -> Result<Answer<BatchView>, Problem> {
    check_batch(call.body.instances.len())?;
    let mut batch = Vec::with_capacity(call.body.instances.len());
    let trace = call.trace();
    let mut versions = Versions::default();
    for (index, Object(body)) in call.body.instances.into_iter().enumerate() {
        let in_place =
            |problem: Problem| Problem { detail: format!("entry {index}: {}", problem.detail), ..problem };
        let mut new = body.into_new(&call.caller, &call.client, &mut versions).await.map_err(in_place)?;
        new.trace = new.trace.or_else(|| trace.clone());
        batch.push(new);
    }
    match call.client.start_many(batch).await {
        Ok(inserted) => {
            Answer::ok(BatchView { results: inserted.into_iter().map(StartedView::of).collect() })
        }
        Err(error) => Err(sight::refused(error, &call.caller, &call.client).await),
    }
}

pub(super) fn check_batch(entries: usize) -> Result<(), Problem> {
    if entries > BATCH_MAX {
        let told = format!("a batch has at most {BATCH_MAX} entries, not {entries}: send several batches");
        return Err(Problem::new(Cause::TooLarge, told));
    }
    Ok(())
}

impl StartedView {
    fn of(inserted: Inserted) -> Self {
        match inserted {
            Inserted::New(id) => Self { id: id.0, created: true, signals: Vec::new() },
            Inserted::Taken { holder, signals } => {
                let signals = signals.into_iter().map(DeliveredView::from).collect();
                Self { id: holder.0, created: false, signals }
            }
        }
    }
}

impl StartBody {
    async fn into_new(
        self,
        caller: &Caller,
        client: &Client,
        versions: &mut Versions,
    ) -> Result<NewInstance, Problem> {
        let start_at = self.start_at()?;
        let version = match self.version {
            Some(version) => version,
            None => versions.newest(client, &self.machine).await?,
        };
        let declared = client.declaration(&self.machine, version).await?;
        let declared = declared.filter(|declared| declared.version == version);
        let steps = declared.as_ref().map(|declared| declared.steps.as_slice()).unwrap_or_default();
        let step = self.step.or_else(|| first(declared.as_deref()?));
        let step = match step {
            Some(step) if steps.is_empty() || steps.contains(&step) => step,
            step => {
                let is_seen = Sight::of(caller, client).await?.sees(&self.machine);
                return Err(no_such_step(&self.machine, step, if is_seen { steps } else { &[] }));
            }
        };
        let mut new = NewInstance::named(self.machine, version, At { step: step.into(), state: self.state });
        new.queue = self.queue.or(declared.map(|declared| declared.queue.clone())).unwrap_or(new.queue);
        new.priority = self.priority;
        new.key = self.key;
        new.even_if_unknown = self.even_if_unknown;
        new.lane = self.lane;
        new.share = self.share;
        new.trace = self.trace;
        new.cost = self.cost.unwrap_or(1);
        new.tags = self.tags;
        new.start_at = start_at;
        new.history = self.history.map(|on| if on { History::On } else { History::Off });
        new.signals = self.signals.into_iter().map(|signal| signal.0.into_new()).collect::<Result<_, _>>()?;
        new.key_scope = match self.key_scope {
            None | Some(KeyScopeBody::Named(NamedScope::Live)) => KeyScope::Live,
            Some(KeyScopeBody::Named(NamedScope::Always)) => KeyScope::Always,
            Some(KeyScopeBody::In(words)) => KeyScope::In(words.into_iter().map(Into::into).collect()),
        };
        client.check(&new).await?;
        Ok(new)
    }

    fn start_at(&self) -> Result<Option<When>, Problem> {
        match (self.start_at, &self.start_in) {
            (Some(_), Some(_)) => Err(Problem::invalid("give `start_at` or `start_in`, not both")),
            (Some(at), None) => Ok(Some(When::At(at))),
            (None, Some(text)) => Ok(Some(When::In(span::parse(text).map_err(Problem::invalid)?))),
            (None, None) => Ok(None),
        }
    }
}

/// Why an instance cannot start: the step does not exist or is missing. `known` lists the steps that the caller may
/// see.
fn no_such_step(machine: &str, step: Option<String>, known: &[String]) -> Problem {
    let known = known.join(", ");
    match step {
        Some(step) if known.is_empty() => {
            Problem::new(Cause::InvalidState, format!("machine {machine} has no step {step:?}"))
        }
        Some(step) => {
            let told = format!("machine {machine} has no step {step:?}; it has {known}");
            Problem::new(Cause::InvalidState, told)
        }
        None if known.is_empty() => Problem::invalid("`step` is missing: name the step to start at"),
        None => Problem::invalid(format!("`step` is missing: name one of {known}")),
    }
}

/// The first step of a machine, if it declares one: its only step, or the first of its graph.
pub(super) fn first(declared: &Declaration) -> Option<String> {
    match &declared.steps[..] {
        [only] => Some(only.clone()),
        _ => declared.graph.as_ref()?.nodes.first().map(|node| node.step.clone()),
    }
}

/// The newest versions of machines, each looked up once.
#[derive(Default)]
struct Versions(Option<HashMap<String, u32>>);

impl Versions {
    /// The newest version that is registered here, or that a live worker runs, or that was ever declared.
    async fn newest(&mut self, client: &Client, machine: &str) -> Result<u32, Problem> {
        let here = client.registry().machines().filter(|code| code.name() == machine);
        if let Some(newest) = here.map(|code| code.version()).max() {
            return Ok(newest);
        }
        if self.0.is_none() {
            let declared = client.declarations().await?;
            let mut newest: HashMap<_, _> =
                declared.iter().map(|declared| (declared.name.clone(), declared.version)).collect();
            let workers = client.store().stats(Some(client.namespace().to_owned())).await?.workers;
            let mut run = HashMap::new();
            for (name, version) in workers.into_iter().flat_map(|worker| worker.machines) {
                let known = run.entry(name).or_insert(version);
                *known = version.max(*known);
            }
            newest.extend(run);
            self.0 = Some(newest);
        }
        Ok(self.0.as_ref().and_then(|newest| newest.get(machine)).copied().unwrap_or(1))
    }
}
