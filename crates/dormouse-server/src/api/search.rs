//! Which instances a list shows, and a bulk action changes: the same query for both.

use dormouse::jiff::Timestamp;
use dormouse::store::{CONDITIONS_MAX, Condition, Filter, LOOKED_MAX};
use dormouse::{InstanceId, Status, UnknownWord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::instances::limit;
use crate::cursor;
use crate::problem::Problem;
use crate::route::{Answer, Call, Several};
use crate::view::{InstanceSummary, StatusWord};

/// Which instances to list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    machine: Option<String>,
    version: Option<u32>,
    /// Only instances in this status. Repeat it for several.
    #[serde(default)]
    #[schemars(with = "Vec<StatusWord>")]
    status: Several,
    step: Option<String>,
    queue: Option<String>,
    /// Only instances whose key starts with this.
    key: Option<String>,
    /// Only instances that await this signal; oldest first.
    awaiting: Option<String>,
    /// Only children of this instance.
    parent: Option<i64>,
    /// Only instances that no other instance spawned.
    #[serde(default)]
    roots: bool,
    /// Only instances with this tag. Repeat it to require several; put the rarest first.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    tag: Several,
    /// Only instances created at or after this moment.
    created_from: Option<Timestamp>,
    /// Only instances created before this moment.
    created_before: Option<Timestamp>,
    /// Only instances whose last transition was at or after this moment.
    changed_from: Option<Timestamp>,
    /// Only instances whose last transition was before this moment.
    changed_before: Option<Timestamp>,
    /// Only instances that ended at or after this moment.
    ended_from: Option<Timestamp>,
    /// Only instances that ended before this moment.
    ended_before: Option<Timestamp>,
    /// Only instances whose last error has this text in it.
    error: Option<String>,
    /// Only instances whose state meets this condition, such as `total > 1000` or `customer = "acme"`. Repeat it to
    /// require several. With `machine`, an index leads to fields that the machine declares as indexed.
    #[serde(default, rename = "where")]
    #[schemars(with = "Vec<String>")]
    conditions: Several,
    order: Option<Order>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// At most this many; 50 by default, up to 500.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

/// The order of a list.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Order {
    Newest,
    Oldest,
}

/// How far a search looked for a page.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Looked")]
pub(crate) struct LookedView {
    /// How many rows it looked at, up to 10,000. What it did not look at is on the next pages.
    pub(crate) rows: usize,
    /// Whether an index led it to them. If not, it looked at the newest, or at the next ones after the page before.
    pub(crate) indexed: bool,
}

impl ListQuery {
    /// Whether it narrows the list at all.
    pub(super) fn is_narrow(&self) -> bool {
        let texts = [&self.machine, &self.step, &self.queue, &self.key, &self.awaiting, &self.error];
        let times = [self.created_from, self.created_before, self.changed_from, self.changed_before];
        let ends = [self.ended_from, self.ended_before];
        texts.iter().any(|text| text.is_some())
            || times.iter().chain(&ends).any(Option::is_some)
            || self.version.is_some()
            || self.parent.is_some()
            || self.roots
            || !(self.status.0.is_empty() && self.tag.0.is_empty() && self.conditions.0.is_empty())
    }

    pub(super) fn filter(self) -> Result<Filter, Problem> {
        let (after, after_at) = cursor::after(self.cursor.as_deref())?;
        let statuses = statuses(self.status.0.iter().map(String::as_str))?;
        let (status, statuses) = match &statuses[..] {
            [status] => (Some(*status), Vec::new()),
            _ => (None, statuses),
        };
        Ok(Filter {
            namespace: None,
            machine: self.machine,
            version: self.version,
            status,
            statuses,
            step: self.step,
            queue: self.queue,
            key_prefix: self.key,
            parent: self.parent.map(InstanceId),
            roots: self.roots,
            tags: self.tag.0,
            awaiting: self.awaiting,
            created_from: self.created_from,
            created_before: self.created_before,
            changed_from: self.changed_from,
            changed_before: self.changed_before,
            ended_from: self.ended_from,
            ended_before: self.ended_before,
            error: self.error,
            conditions: conditions(self.conditions.0.iter().map(String::as_str))?,
            oldest_first: self.order == Some(Order::Oldest),
            heads_only: true,
            after,
            after_at,
            limit: limit(self.limit)?,
        })
    }
}

/// Statuses by their words; one text may have several, with commas between.
pub(crate) fn statuses<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vec<Status>, Problem> {
    let words = words.flat_map(|words| words.split(',')).map(str::trim).filter(|word| !word.is_empty());
    let read =
        |word: &str| word.parse().map_err(|unknown: UnknownWord| Problem::invalid(unknown.to_string()));
    words.map(read).collect()
}

/// Conditions as people write them.
pub(crate) fn conditions<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<Condition>, Problem> {
    let texts: Vec<_> = texts.map(str::trim).filter(|text| !text.is_empty()).collect();
    if texts.len() > CONDITIONS_MAX {
        let told = format!("a search takes up to {CONDITIONS_MAX} conditions, not {}", texts.len());
        return Err(Problem::invalid(told));
    }
    texts.into_iter().map(|text| text.parse().map_err(Problem::from)).collect()
}

/// What to say about how far a search looked.
pub(crate) fn told_of(looked: Option<dormouse::store::Looked>, has_more: bool) -> Option<String> {
    let looked = looked?;
    match (looked.indexed, has_more) {
        (true, _) => None,
        (false, false) => Some(format!("Not indexed: looked at all {}.", looked.rows)),
        (false, true) if looked.rows >= LOOKED_MAX => Some(
            "Not indexed: looked at 10,000 instances for this page; the next page looks further.".to_owned(),
        ),
        (false, true) => Some(format!("Not indexed: looked at the newest {}.", looked.rows)),
    }
}

/// A page of instances.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PageOfInstances")]
pub(super) struct InstancePage {
    items: Vec<InstanceSummary>,
    /// Pass it as `cursor` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// How far a search looked; absent if an index of its own answers the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    looked: Option<LookedView>,
}

pub(super) async fn list(call: Call<ListQuery>) -> Result<Answer<InstancePage>, Problem> {
    let page = call.client.list(call.query.filter()?).await?;
    let next = cursor::next(&page);
    let looked = page.looked.map(|looked| LookedView { rows: looked.rows, indexed: looked.indexed });
    Answer::ok(InstancePage { items: page.instances.into_iter().map(Into::into).collect(), next, looked })
}
