//! Routes for limits: how many instances of a lane run at a time.

use dormouse::Limit;
use dormouse::jiff::Timestamp;
use dormouse::store::LimitView as View;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::instances::limit as rows;
use crate::problem::Problem;
use crate::route::{Answer, Call, Nothing};

/// Limits, in the order of their names.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Limits")]
pub(super) struct LimitsView {
    limits: Vec<LimitView>,
    /// The `after` of the next page, if there is one.
    next: Option<String>,
}

/// A limit, and how much of it is in use.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Limit")]
struct LimitView {
    /// A lane, or a family: the part of a lane before its first `/`.
    name: String,
    /// How many instances of the lane, or of each lane of the family, run at a time.
    width: u32,
    changed_at: Timestamp,
    /// Lanes in which something runs or waits; up to 200 are looked at.
    lanes: usize,
    /// Whether there are more lanes than those.
    more_lanes: bool,
    /// Places in use in these lanes.
    held: u64,
    /// Instances that wait for a place in these lanes; up to 1,000 are counted in each.
    waiting: u64,
}

impl From<View> for LimitView {
    fn from(view: View) -> Self {
        let View { name, limit, changed_at, lanes, more_lanes, held, waiting } = view;
        Self { name, width: limit.width, changed_at, lanes, more_lanes, held, waiting }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsQuery {
    /// Only names after this one: the `next` of the previous page.
    after: Option<String>,
    /// At most this many; 50 by default, up to 500.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

pub(super) async fn list(call: Call<LimitsQuery>) -> Result<Answer<LimitsView>, Problem> {
    let LimitsQuery { after, limit } = call.query;
    let limit = rows(limit)?;
    let mut found = call.client.store().limits(call.caller.namespace, after, limit + 1).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| has_more).map(|last| last.name.clone());
    Answer::ok(LimitsView { limits: found.into_iter().map(Into::into).collect(), next })
}

/// A limit as it is set.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetLimit")]
pub(super) struct SetBody {
    /// How many instances of the lane, or of each lane of the family, run at a time.
    #[schemars(range(min = 1, max = 10_000))]
    width: u32,
}

/// The name and the width of a limit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LimitSet")]
pub(super) struct LimitSet {
    limit: String,
    width: u32,
}

pub(super) async fn set(call: Call<Nothing, SetBody>) -> Result<Answer<LimitSet>, Problem> {
    let (limit, width) = (call.path("limit").to_owned(), call.body.width);
    call.client.set_limit(&*limit, Limit::width(width)).await?;
    Answer::ok(LimitSet { limit, width })
}

/// Whether a limit was removed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LimitRemoved")]
pub(super) struct LimitRemoved {
    limit: String,
    /// Whether there was one.
    removed: bool,
}

pub(super) async fn remove(call: Call<Nothing, Nothing>) -> Result<Answer<LimitRemoved>, Problem> {
    let limit = call.path("limit").to_owned();
    let removed = call.client.remove_limit(&*limit).await?;
    let told = LimitRemoved { limit, removed };
    if removed { Answer::ok(told) } else { Answer::unchanged(told) }
}
