//! Routes that signal instances.

use dormouse::jiff::Timestamp;
use dormouse::{Delivered, InstanceId, Json, NewSignal, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::start::check_batch;
use crate::body::Object;
use crate::problem::Problem;
use crate::route::{Answer, Call, Nothing, parse_target};
use crate::span::{self, SPAN_PATTERN};

/// A signal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewSignal")]
pub(super) struct SignalBody {
    #[schemars(length(min = 1, max = 255))]
    name: String,
    #[serde(default = "Json::null")]
    #[schemars(with = "serde_json::Value")]
    payload: Json,
    /// A key that makes redelivery a no-op for the life of the instance.
    dedup_key: Option<String>,
    /// The trace in which it is sent, as the header `traceparent` writes it; by default that of the request.
    trace: Option<String>,
    /// How long to keep it, such as `1h`, if no instance has the key that it is sent to yet; up to `366d`.
    #[schemars(extend("pattern" = SPAN_PATTERN))]
    keep_for: Option<String>,
}

impl SignalBody {
    pub(super) fn into_new(self) -> Result<NewSignal, Problem> {
        let Self { name, payload, dedup_key, trace, keep_for } = self;
        let keep_for = keep_for.as_deref().map(span::parse).transpose().map_err(Problem::invalid)?;
        Ok(NewSignal { name, payload, dedup_key, trace, keep_for })
    }
}

/// The result of a signal.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Delivered")]
pub(super) struct DeliveredView {
    delivered: DeliveredWord,
    /// The id of the stored signal; of one that is kept, its id while it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    /// Whether the signal made the instance runnable.
    woke: bool,
    /// When a kept signal expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum DeliveredWord {
    /// It is in the inbox.
    Accepted,
    /// A signal with this dedup key had been delivered before.
    Duplicate,
    /// The target is unknown or has ended; nothing was stored.
    NoTarget,
    /// The target's inbox is full; nothing was stored.
    InboxFull,
    /// No instance has the key yet: it is kept for the one that starts with it.
    Kept,
    /// It was to be kept, and the namespace keeps as much as the limit allows; nothing was stored.
    KeptFull,
}

impl From<Delivered> for DeliveredView {
    fn from(delivered: Delivered) -> Self {
        let of = |delivered| Self { delivered, id: None, woke: false, until: None };
        match delivered {
            Delivered::Accepted { id, woke } => Self { id: Some(id.0), woke, ..of(DeliveredWord::Accepted) },
            Delivered::Kept { id, until } => {
                Self { id: Some(id.0), until: Some(until), ..of(DeliveredWord::Kept) }
            }
            Delivered::Duplicate => of(DeliveredWord::Duplicate),
            Delivered::NoTarget => of(DeliveredWord::NoTarget),
            Delivered::InboxFull => of(DeliveredWord::InboxFull),
            Delivered::KeptFull => of(DeliveredWord::KeptFull),
        }
    }
}

pub(super) async fn one(call: Call<Nothing, SignalBody>) -> Result<Answer<DeliveredView>, Problem> {
    let (target, trace) = (call.target()?, call.trace());
    let signal = call.body.into_new()?;
    let signal = NewSignal { trace: signal.trace.or(trace), ..signal };
    Answer::ok(call.client.signal_raw(target, signal).await?.into())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewSignals")]
pub(super) struct BatchBody {
    #[schemars(with = "Vec<Addressed>", length(max = 1000))]
    signals: Vec<Object<Addressed>>,
}

/// A signal and its target.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AddressedSignal")]
struct Addressed {
    target: TargetBody,
    #[schemars(length(min = 1, max = 255))]
    name: String,
    #[serde(default = "Json::null")]
    #[schemars(with = "serde_json::Value")]
    payload: Json,
    dedup_key: Option<String>,
    /// By default, that of the request.
    trace: Option<String>,
    /// How long to keep it, if no instance has the key that it is sent to yet.
    #[schemars(extend("pattern" = SPAN_PATTERN))]
    keep_for: Option<String>,
}

/// An instance's id, or `key:` and its key.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Target")]
enum TargetBody {
    Id(i64),
    Text(String),
}

/// The result of each signal, in order.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeliveredMany")]
pub(super) struct BatchView {
    results: Vec<DeliveredView>,
}

pub(super) async fn many(call: Call<Nothing, BatchBody>) -> Result<Answer<BatchView>, Problem> {
    check_batch(call.body.signals.len())?;
    let mut batch: Vec<(Target, NewSignal)> = Vec::with_capacity(call.body.signals.len());
    let of_request = call.trace();
    for Object(Addressed { target, name, payload, dedup_key, trace, keep_for }) in call.body.signals {
        let target = match target {
            TargetBody::Id(id) => Target::Id(InstanceId(id)),
            TargetBody::Text(text) => parse_target(&text)?,
        };
        let trace = trace.or_else(|| of_request.clone());
        let signal = SignalBody { name, payload, dedup_key, trace, keep_for };
        batch.push((target, signal.into_new()?));
    }
    let delivered = call.client.signal_many(batch).await?;
    Answer::ok(BatchView { results: delivered.into_iter().map(DeliveredView::from).collect() })
}
