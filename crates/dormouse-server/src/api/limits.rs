//! Routes for limits: how many instances of a lane run at a time, and how many of its steps start in a period.

use dormouse::jiff::Timestamp;
use dormouse::store::LimitView as View;
use dormouse::{Limit, Rate, WIDTH_MAX};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::instances::limit as rows;
use crate::problem::Problem;
use crate::route::{Answer, Call, Nothing};
use crate::span::{self, SPAN_PATTERN};

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
    #[serde(flatten)]
    rate: RateView,
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
        let (width, rate) = (limit.width, limit.rate.into());
        Self { name, width, rate, changed_at, lanes, more_lanes, held, waiting }
    }
}

/// How many steps start in a period; nothing of it without a rate.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LimitRate")]
struct RateView {
    /// How many steps of the lane, or of each lane of the family, start in each period.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u32>,
    /// The period, such as `1s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<String>,
    /// How many may start together after a rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
}

impl From<Option<Rate>> for RateView {
    fn from(rate: Option<Rate>) -> Self {
        Self {
            rate: rate.map(|rate| rate.count),
            period: rate.map(|rate| span::exact(rate.period)),
            burst: rate.map(|rate| rate.burst),
        }
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

/// A limit as it is set: a width, a rate, or both.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetLimit")]
pub(super) struct SetBody {
    /// How many instances of the lane, or of each lane of the family, run at a time; with a rate alone, any number.
    #[schemars(range(min = 1, max = 10_000))]
    width: Option<u32>,
    /// How many steps of the lane, or of each lane of the family, start in each period; without it, any number.
    #[schemars(range(min = 1, max = 1_000_000))]
    rate: Option<u32>,
    /// The period of the rate, from `1ms` to `366d`; `1s` by default.
    #[schemars(extend("pattern" = SPAN_PATTERN))]
    period: Option<String>,
    /// How many may start together after a rest; 1 by default, which spaces starts evenly.
    #[schemars(range(min = 1, max = 1_000_000))]
    burst: Option<u32>,
}

impl SetBody {
    fn limit(&self) -> Result<Limit, Problem> {
        let Some(count) = self.rate else {
            if self.period.is_some() || self.burst.is_some() {
                return Err(Problem::invalid("give a `rate` with `period` and `burst`"));
            }
            let width = self.width.ok_or_else(|| Problem::invalid("give a `width`, a `rate` or both"))?;
            return Ok(Limit::width(width));
        };
        let period = span::parse(self.period.as_deref().unwrap_or("1s")).map_err(Problem::invalid)?;
        let rate = Rate::new(count, period).burst(self.burst.unwrap_or(1));
        Ok(Limit::width(self.width.unwrap_or(WIDTH_MAX)).and_rate(rate))
    }
}

/// The name of a limit, its width and its rate.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LimitSet")]
pub(super) struct LimitSet {
    limit: String,
    width: u32,
    #[serde(flatten)]
    rate: RateView,
}

pub(super) async fn set(call: Call<Nothing, SetBody>) -> Result<Answer<LimitSet>, Problem> {
    let (name, limit) = (call.path("limit").to_owned(), call.body.limit()?);
    call.client.set_limit(&*name, limit).await?;
    Answer::ok(LimitSet { limit: name, width: limit.width, rate: limit.rate.into() })
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
