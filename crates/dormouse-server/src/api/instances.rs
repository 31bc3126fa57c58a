//! Routes that read instances.

use std::time::Duration;

use dormouse::store::{Bounds, Events, Filter, Portion};
use dormouse::{Client, Error, Event, Instance, Json, SignalId, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cursor::{self, List};
use crate::problem::Problem;
use crate::route::{Answer, Call};
use crate::span::{self, SPAN_PATTERN};
use crate::view::{EventView, InboxView, InstanceSummary, InstanceView, MailPiece, Page, StatusWord};

const LIMIT: usize = 50;
pub(super) const LIMIT_MAX: usize = 500;
/// The longest wait of a request.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub(super) fn page(page: dormouse::store::Page) -> Result<Answer<Page<InstanceSummary>>, Problem> {
    let next = cursor::next(&page);
    Answer::ok(Page { items: page.instances.into_iter().map(Into::into).collect(), next })
}

pub(super) fn limit(asked: Option<usize>) -> Result<usize, Problem> {
    match asked {
        None => Ok(LIMIT),
        Some(limit @ 1..=LIMIT_MAX) => Ok(limit),
        Some(limit) => Err(Problem::invalid(format!("`limit` is 1 to {LIMIT_MAX}, not {limit}"))),
    }
}

pub(super) async fn get(call: Call) -> Result<Answer<InstanceView>, Problem> {
    let target = call.target()?;
    let instance = call.client.get(target.clone()).await?.ok_or(Error::NotFound(target))?;
    Answer::ok(view(&call.client, instance).await?)
}

/// Returns an instance, with the progress that its running step reports.
async fn view(client: &Client, instance: Instance) -> Result<InstanceView, Problem> {
    let progress = match instance.status {
        Status::Executing => client.progress(instance.id).await?,
        _ => None,
    };
    Ok(InstanceView::from(instance).with_progress(progress))
}

/// Which page of a list to return.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// At most this many; 50 by default, up to 500.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

/// Which events.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// Only events after this `seq`.
    after: Option<u64>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// At most this many; 50 by default, up to 500.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

pub(super) async fn history(call: Call<HistoryQuery>) -> Result<Answer<Page<EventView>>, Problem> {
    let target = call.target()?;
    let limit = limit(call.query.limit)?;
    let after = match (&call.query.cursor, call.query.after) {
        (Some(_), Some(_)) => return Err(Problem::invalid("give `cursor` or `after`, not both")),
        (Some(cursor), None) => cursor::decode(List::History, cursor)?.cast_unsigned(),
        (None, after) => after.unwrap_or(0),
    };
    let read = call.client.history_page(target.clone(), Events::After(after), Bounds::rows(limit)).await?;
    // The event before the first one of this page.
    let first = read.items.first().map(|event| event.seq).filter(|first| *first > 1);
    let before = match first {
        Some(first) => {
            call.client.history_page(target, Events::Before(first), Bounds::rows(1)).await?.items.pop()
        }
        None => None,
    };
    let mut before = before.map(|event| event.step);
    let pair = |event: Event| (before.replace(event.step.clone()), event);
    let items: Vec<_> = read.items.into_iter().map(pair).collect();
    answer(Portion { items, more: read.more }, |(_, event)| (List::History, event.seq.cast_signed()))
}

pub(super) async fn inbox(call: Call<PageQuery>) -> Result<Answer<Page<InboxView>>, Problem> {
    let target = call.target()?;
    let limit = limit(call.query.limit)?;
    let after = call.query.cursor.as_deref().map(|cursor| cursor::decode(List::Inbox, cursor)).transpose()?;
    let instance = call.client.head(target.clone()).await?.ok_or(Error::NotFound(target))?;
    let after = after.map(SignalId);
    let Portion { items, more } = call.client.store().inbox(instance.id, after, Bounds::rows(limit)).await?;
    let unreadable = call.client.unreadable(&instance, &items).await?;
    answer(Portion { items: items.into_iter().zip(unreadable).collect(), more }, |(signal, _)| {
        (List::Inbox, signal.id.0)
    })
}

/// Mail that waits, in the order in which it was sent.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Mail")]
pub(super) struct MailList {
    /// The first 100 pieces.
    items: Vec<MailPiece>,
}

pub(super) async fn mail(call: Call) -> Result<Answer<MailList>, Problem> {
    let waiting = call.client.mail(call.target()?).await?;
    Answer::ok(MailList { items: waiting.into_iter().map(Into::into).collect() })
}

/// A page of the rows, with the cursor of the next page.
fn answer<T, V: From<T>>(
    Portion { items, more }: Portion<T>,
    position: impl Fn(&T) -> (List, i64),
) -> Result<Answer<Page<V>>, Problem> {
    let last = items.last().filter(|_| more).map(position);
    let next = last.map(|(list, last)| cursor::encode(list, last));
    Answer::ok(Page { items: items.into_iter().map(Into::into).collect(), next })
}

pub(super) async fn children(call: Call<PageQuery>) -> Result<Answer<Page<InstanceSummary>>, Problem> {
    let target = call.target()?;
    let ((after, _), limit) = (cursor::after(call.query.cursor.as_deref())?, limit(call.query.limit)?);
    let parent = call.client.head(target.clone()).await?.ok_or(Error::NotFound(target))?.id;
    let filter = Filter { parent: Some(parent), after, limit, heads_only: true, ..Filter::default() };
    page(call.client.list(filter).await?)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultQuery {
    /// How long to wait, such as `30s`; up to `60s`.
    #[schemars(extend("pattern" = SPAN_PATTERN))]
    wait: Option<String>,
}

/// The result of an instance, or why there is none yet.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Result")]
pub(super) struct ResultView {
    id: i64,
    #[schemars(with = "StatusWord")]
    status: Status,
    /// The output, if it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Value")]
    output: Option<Json>,
    /// Why it failed or was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Why it has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<String>,
}

/// Whether a long poll waits until an instance ends, or until it is parked or ends.
#[derive(Clone, Copy)]
enum Until {
    Ended,
    Settled,
}

/// Waits as long as the request asks, unless the server stops first or has too many waiting requests.
async fn wait(call: &Call<ResultQuery>, until: Until) -> Result<dormouse::Result<Instance>, Problem> {
    let target = call.target()?;
    let wait = call.query.wait.as_deref().map(span::parse).transpose().map_err(Problem::invalid)?;
    let wait = wait.unwrap_or_default();
    if wait > WAIT_MAX {
        return Err(Problem::invalid("`wait` is at most 60s; to wait longer, send the request again"));
    }
    let _place = if wait.is_zero() { None } else { Some(call.app.waits.take(&call.caller)?) };
    let reached = |within| {
        let (client, target) = (call.client.clone(), target.clone());
        async move {
            match until {
                Until::Ended => client.wait_end(target, within).await,
                Until::Settled => client.wait_settled(target, within).await,
            }
        }
    };
    Ok(match call.app.stopping.run_until_cancelled(reached(wait)).await {
        Some(reached) => reached,
        None => reached(Duration::ZERO).await,
    })
}

/// 200 if the instance is parked or has ended; 202 if it runs or is runnable.
pub(super) async fn settled(call: Call<ResultQuery>) -> Result<Answer<InstanceView>, Problem> {
    match wait(&call, Until::Settled).await? {
        Ok(instance) => Answer::ok(instance.into()),
        Err(Error::StillLive { id, .. }) => {
            let instance = call.client.get(id).await?.ok_or(Error::NotFound(id.into()))?;
            Answer::accepted(view(&call.client, instance).await?)
        }
        Err(error) => Err(error.into()),
    }
}

/// 200 if the instance has ended in any way; 202 if not.
pub(super) async fn result(call: Call<ResultQuery>) -> Result<Answer<ResultView>, Problem> {
    match wait(&call, Until::Ended).await? {
        Ok(instance) => {
            let (id, status, output) = (instance.id.0, instance.status, instance.output);
            let error = match status {
                Status::Done => None,
                Status::Cancelled => instance.cancel_reason,
                _ => instance.last_error,
            };
            Answer::ok(ResultView { id, status, output, error, explanation: None })
        }
        Err(Error::StillLive { id, explanation, .. }) => {
            let instance = call.client.head(id).await?.ok_or(Error::NotFound(id.into()))?;
            let explanation = Some(explanation);
            Answer::accepted(ResultView {
                id: id.0,
                status: instance.status,
                output: None,
                error: None,
                explanation,
            })
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Explanation")]
pub(super) struct ExplanationView {
    explanation: String,
}

pub(super) async fn explain(call: Call) -> Result<Answer<ExplanationView>, Problem> {
    Answer::ok(ExplanationView { explanation: call.client.explain(call.target()?).await? })
}
