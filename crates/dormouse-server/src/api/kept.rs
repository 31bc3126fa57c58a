//! Routes for signals that are kept for instances to come.

use dormouse::jiff::Timestamp;
use dormouse::store::{Bounds, KeptCount, KeptFilter, Portion};
use dormouse::{Json, KeptId, KeptSignal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::instances::limit as rows;
use crate::cursor::{self, List};
use crate::problem::{Cause, Problem};
use crate::route::{Answer, Call, Nothing};

/// Kept signals in the order in which they came, and how much is kept in all.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KeptSignals")]
pub(super) struct KeptList {
    items: Vec<KeptView>,
    /// The `cursor` of the next page, if there is one.
    next: Option<String>,
    /// How many are kept in the namespace.
    signals: u64,
    /// How many bytes their payloads have.
    bytes: u64,
}

/// A signal that is kept for the instance that starts with a key.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KeptSignal")]
struct KeptView {
    id: i64,
    /// The key of the instance to come.
    key: String,
    name: String,
    #[schemars(with = "serde_json::Value")]
    payload: Json,
    dedup_key: Option<String>,
    /// When it was sent.
    at: Timestamp,
    /// When it expires.
    until: Timestamp,
}

impl From<KeptSignal> for KeptView {
    fn from(kept: KeptSignal) -> Self {
        let KeptSignal { id, key, name, payload, dedup_key, at, until } = kept;
        Self { id: id.0, key, name, payload, dedup_key, at, until }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct KeptQuery {
    /// Only those for this key.
    key: Option<String>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// At most this many; 50 by default, up to 500.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

pub(super) async fn list(call: Call<KeptQuery>) -> Result<Answer<KeptList>, Problem> {
    let KeptQuery { key, cursor, limit } = call.query;
    let limit = rows(limit)?;
    let after = cursor.as_deref().map(|cursor| cursor::decode(List::Kept, cursor)).transpose()?;
    let filter = KeptFilter { key, after: after.map(KeptId) };
    let KeptCount { signals, bytes, .. } = call.client.count_kept().await?;
    let store = call.client.store();
    let Portion { items, more } = store.kept(call.caller.namespace, filter, Bounds::rows(limit)).await?;
    let next = items.last().filter(|_| more).map(|last| cursor::encode(List::Kept, last.id.0));
    Answer::ok(KeptList { items: items.into_iter().map(Into::into).collect(), next, signals, bytes })
}

/// The kept signal that was dropped.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KeptDropped")]
pub(super) struct KeptDropped {
    id: i64,
}

pub(super) async fn drop(call: Call<Nothing, Nothing>) -> Result<Answer<KeptDropped>, Problem> {
    let text = call.path("kept");
    let id: i64 = text.parse().map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        Problem::invalid(format!(
            "{shown:?} is not the id of a kept signal: write the id that the list shows"
        ))
    })?;
    if call.client.drop_kept(KeptId(id)).await? {
        return Answer::ok(KeptDropped { id });
    }
    let told =
        format!("no signal {id} is kept: its instance has started, its time is over, or it was dropped");
    Err(Problem::new(Cause::NoSignal, told))
}
