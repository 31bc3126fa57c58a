//! Acting on many instances: first a page that shows how many, then the action.

use std::sync::Arc;

use dormouse::store::Filter;
use dormouse::{Instance, InstanceId};
use futures_util::{StreamExt as _, stream};
use maud::{Markup, html};
use serde::Serialize;
use serde_json::{Value, json};

use super::Answered;
use super::act::{SignalBody, once};
use super::form;
use super::instances::{FILTERS, filter, kept};
use super::parts::{self, number};
use super::visit::Visit;
use crate::problem::Problem;

/// The most instances that one form acts on. If more match, the page says so, and the next form can take them.
const MAX: usize = 1_000;
/// How far to search for them: this many pages of this many rows.
const LOOKS: usize = 4;
const LOOK_ROWS: usize = 500;
/// How many requests run at once: enough for the store to commit them in groups.
const AT_A_TIME: usize = 16;
/// How many instances the page names before the action.
const NAMED: usize = 10;

/// What to do to each instance.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Signal,
    Cancel,
    Retry,
    Pause,
    Resume,
}

impl Verb {
    pub(super) const ALL: [Self; 5] = [Self::Signal, Self::Cancel, Self::Retry, Self::Pause, Self::Resume];

    fn parse(word: Option<&str>) -> Result<Self, Problem> {
        let found = Self::ALL.into_iter().find(|verb| word == Some(verb.word()));
        found.ok_or_else(|| {
            Problem::invalid("`verb` is missing: it is signal, cancel, retry, pause or resume")
        })
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }

    pub(super) fn button(self) -> &'static str {
        match self {
            Self::Signal => "Signal",
            Self::Cancel => "Cancel",
            Self::Retry => "Retry",
            Self::Pause => "Pause",
            Self::Resume => "Resume",
        }
    }

    fn route(self) -> &'static str {
        match self {
            Self::Signal => "/v1/instances/{instance}/signals",
            Self::Cancel => "/v1/instances/{instance}/cancel",
            Self::Retry => "/v1/instances/{instance}/retry",
            Self::Pause => "/v1/instances/{instance}/pause",
            Self::Resume => "/v1/instances/{instance}/resume",
        }
    }

    fn warning(self) -> &'static str {
        match self {
            Self::Signal => "Each gets the signal in its inbox, and wakes if it awaits it.",
            Self::Cancel => "They end now, and their live children with them. What they did stays done.",
            Self::Retry => "Those that failed or were cancelled run again from the step they ended at.",
            Self::Pause => {
                "No worker claims them until they are resumed. A running step continues to its end."
            }
            Self::Resume => "Workers can claim them again.",
        }
    }

    /// Whether the action applies to an instance in its current status.
    fn fits(self, instance: &Instance) -> bool {
        let has_ended = instance.status.is_terminal();
        match self {
            Self::Signal | Self::Cancel => !has_ended,
            Self::Retry => has_ended && instance.status != dormouse::Status::Done,
            Self::Pause => !has_ended && !instance.paused,
            Self::Resume => instance.paused,
        }
    }
}

/// Shows how many instances the action applies to, and asks for confirmation.
pub(super) async fn confirm(visit: Visit) -> Answered {
    let verb = Verb::parse(visit.query.get("verb"))?;
    let (meant, has_more) = meant(&visit, verb).await?;
    let (s, count) = (&visit.shell, number(meant.len() as u64));
    let back = s.at(&format!(
        "/instances{}",
        visit.query.with(&[("verb", None), ("which", None), ("id", None)]).query()
    ));
    let title = format!("{} {count}?", verb.button());
    if meant.is_empty() {
        return visit.page(&title, &html! {
            h1 { "Nothing to " (verb.word()) }
            section.card {
                (parts::empty("No instance is selected.", &html! {
                    "Choose some in the list, or “all that match the filter”. Instances to which the action does not apply, "
                    "such as ended ones for a cancel, are left out."
                }))
                @if has_more { p.warning { "Not all matches were searched: narrow the filter, by status first." } }
                p { a href=(back) { "Back to the list" } }
            }
        });
    }
    let ids: Vec<String> = meant.iter().map(|instance| instance.id.to_string()).collect();
    let fields = match verb {
        Verb::Signal => Some(signal_fields(&visit).await?),
        Verb::Cancel => Some(html! {
            label for="cancel-reason" { "Reason " span.muted { "(stored in the history of each)" } }
            input #cancel-reason name="reason" maxlength="1024";
        }),
        _ => None,
    };
    visit.page(&title, &html! {
        h1 { (verb.button()) " " span #count data-count=(meant.len()) { (count) } " " (if meant.len() == 1 { "instance" } else { "instances" }) "?" }
        section.card {
            p { (verb.warning()) }
            @if has_more { p.warning { "More match. One form acts on up to " (number(MAX as u64)) " of them: send it again for the others." } }
            (named(&visit, &meant))
            form #confirm method="post" action=(s.at("/instances/bulk")) {
                (s.token())
                input type="hidden" name="verb" value=(verb.word());
                // The instances that were counted, even if others match when the form is sent.
                input type="hidden" name="ids" value=(ids.join(","));
                (kept(&visit.query))
                @if let Some(fields) = fields { (fields) }
                div.buttons {
                    button.primary[verb != Verb::Cancel].danger[verb == Verb::Cancel] type="submit" { (verb.button()) " " (count) }
                    a href=(back) { "Back" }
                }
            }
        }
    })
}

fn named(visit: &Visit, meant: &[Instance]) -> Markup {
    html! {
        ul.tree aria-label="Which" {
            @for instance in meant.iter().take(NAMED) {
                li data-instance=(instance.id) {
                    (parts::link(&visit.shell, instance)) " "
                    span.muted { (instance.machine) ", " (instance.step) } " " (parts::status(instance.status))
                }
            }
            @if meant.len() > NAMED { li.muted { "and " (number((meant.len() - NAMED) as u64)) " more" } }
        }
    }
}

async fn signal_fields(visit: &Visit) -> Result<Markup, Problem> {
    let query = &visit.query;
    let name = query.get("name").or(query.get("awaiting"));
    let form = form::of_any_signal(visit, name.unwrap_or_default()).await?;
    let payload =
        query.text("payload").or(form.as_ref().map(form::sample)).unwrap_or_else(|| "null".to_owned());
    Ok(html! {
        label for="signal-name" { "Name" }
        input #signal-name name="name" value=[name] required spellcheck="false";
        label for="signal-payload" { "Payload, as JSON" }
        textarea #signal-payload name="payload" rows="4" spellcheck="false" { (payload) }
        (once())
    })
}

/// The signal that the form describes.
fn signal_of(visit: &Visit) -> Result<SignalBody, Problem> {
    let name = visit.form.text("name").ok_or_else(|| Problem::invalid("a signal needs a name"))?;
    let payload = form::read(&visit.form, None, "payload")?;
    Ok(SignalBody { name, payload, dedup_key: visit.form.text("dedup_key") })
}

/// The selected instances that the action applies to, and whether there are more.
async fn meant(visit: &Visit, verb: Verb) -> Result<(Vec<Instance>, bool), Problem> {
    let mut found = Vec::new();
    let mut has_more = false;
    if visit.query.get("which") == Some("all") {
        let mut filter = Filter { limit: LOOK_ROWS, heads_only: true, ..filter(&visit.query)? };
        // Skip instances that the action does not apply to, up to a limit.
        for _ in 0..LOOKS {
            let page = visit.client.list(filter.clone()).await?;
            found.extend(page.instances.into_iter().filter(|instance| verb.fits(instance)));
            filter.after = page.next;
            has_more = page.next.is_some();
            if !has_more || found.len() > MAX {
                break;
            }
        }
        has_more |= found.len() > MAX;
    } else {
        for id in visit.query.all("id").filter_map(|id| id.parse().ok()).take(MAX) {
            found.extend(visit.client.head(InstanceId(id)).await?.filter(|instance| verb.fits(instance)));
        }
    }
    found.truncate(MAX);
    Ok((found, has_more))
}

/// Performs the action on each instance that was counted.
pub(super) async fn act(visit: Visit) -> Answered {
    let verb = Verb::parse(visit.form.get("verb"))?;
    let ids: Vec<i64> =
        visit.form.get("ids").unwrap_or_default().split(',').filter_map(|id| id.parse().ok()).collect();
    if ids.is_empty() || ids.len() > MAX {
        return Err(Problem::invalid(format!("a form acts on 1 to {MAX} instances")));
    }
    let body = match verb {
        Verb::Signal => Body::Signal(signal_of(&visit)?),
        Verb::Cancel => Body::Plain(json!({ "reason": visit.form.text("reason") })),
        _ => Body::Plain(json!({})),
    };
    let visit = Arc::new(visit);
    let results: Vec<Result<Value, Problem>> = stream::iter(ids)
        .map(|id| one(visit.clone(), verb, id, body.clone()))
        .buffer_unordered(AT_A_TIME)
        .collect()
        .await;
    let done = results.iter().filter(|result| result.is_ok()).count();
    let refused: Vec<Problem> = results.into_iter().filter_map(Result::err).collect();
    // A server fault, or a refusal that concerns all of them, ends the form with its own error.
    let fault = refused.iter().find(|problem| problem.cause.status().is_server_error() || done == 0);
    if let Some(fault) = fault {
        let detail = format!("done for {done} instances, then it failed: {}", fault.detail);
        return Err(Problem { detail, ..fault.clone() });
    }
    let keep = visit.form.only(&FILTERS);
    let notice = format!("bulk-{done}-{}", refused.len());
    visit.go(&format!("/instances{}", keep.with(&[("notice", Some(&notice))]).query()))
}

/// The request body for each instance.
#[derive(Clone, Serialize)]
#[serde(untagged)]
enum Body {
    Signal(SignalBody),
    Plain(Value),
}

async fn one(visit: Arc<Visit>, verb: Verb, id: i64, body: Body) -> Result<Value, Problem> {
    visit.act(verb.route(), ("instance", &id.to_string()), &body).await
}
