//! Acting on many instances: first a page that shows how many, then the action.

use std::sync::Arc;

use dormouse::store::Filter;
use dormouse::{Instance, InstanceId, Json};
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
use crate::api::Verb;
use crate::problem::Problem;

/// The most instances that a form names one by one. If more match, it acts on all that match, in batches.
const MAX: usize = 1_000;
/// How many of those one request acts on.
const BATCH: usize = 500;
/// How far to search for them: this many pages of this many rows.
const LOOKS: usize = 4;
const LOOK_ROWS: usize = 500;
/// How many requests run at once: enough for the store to commit them in groups.
const AT_A_TIME: usize = 16;
/// How many instances the page names before the action.
const NAMED: usize = 10;

fn parse(word: Option<&str>) -> Result<Verb, Problem> {
    let found = Verb::ALL.into_iter().find(|verb| word == Some(verb.word()));
    found.ok_or_else(|| {
        Problem::invalid("`verb` is missing: it is signal, cancel, retry, edit, pause, resume or fork")
    })
}

/// The word on the button.
pub(super) fn button(verb: Verb) -> &'static str {
    match verb {
        Verb::Signal => "Signal",
        Verb::Cancel => "Cancel",
        Verb::Retry => "Retry",
        Verb::Pause => "Pause",
        Verb::Resume => "Resume",
        Verb::Fork => "Fork",
        Verb::Edit => "Edit",
    }
}

fn warning(verb: Verb) -> &'static str {
    match verb {
        Verb::Signal => "Each gets the signal in its inbox, and wakes if it awaits it.",
        Verb::Cancel => "They end now, and their live children with them. What they did stays done.",
        Verb::Retry => "Those that failed or were cancelled run again from the step they ended at.",
        Verb::Pause => "No worker claims them until they are resumed. A running step continues to its end.",
        Verb::Resume => "Workers can claim them again.",
        Verb::Edit => {
            "Members of their states are replaced. They stay where they are; a running or done one is skipped."
        }
        Verb::Fork => {
            "A new instance starts from the last event of each, without a key. They themselves do not change."
        }
    }
}

/// Shows how many instances the action applies to, and asks for confirmation.
pub(super) async fn confirm(visit: Visit) -> Answered {
    let verb = parse(visit.query.get("verb"))?;
    let (meant, has_more) = meant(&visit, verb).await?;
    let (s, count) = (&visit.shell, number(meant.len() as u64));
    let back = s.at(&format!(
        "/instances{}",
        visit.query.with(&[("verb", None), ("which", None), ("id", None)]).query()
    ));
    let title = format!("{} {count}?", button(verb));
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
        Verb::Edit => Some(html! {
            label for="edit-set" { "Members to replace, as a JSON object " span.muted { "(the others stay)" } }
            textarea #edit-set name="set" rows="4" required spellcheck="false" placeholder="{ \"carrier\": \"post\" }" {}
        }),
        _ => None,
    };
    visit.page(&title, &html! {
        h1 { (button(verb)) " " @if has_more { "more than " } span #count data-count=(meant.len()) { (count) } " " (if meant.len() == 1 { "instance" } else { "instances" }) "?" }
        section.card {
            p { (warning(verb)) }
            @if has_more { p.warning { "More than these match, and it is done for all of them, " (BATCH) " at a time. You can stop in between." } }
            (named(&visit, &meant))
            form #confirm method="post" action=(s.at("/instances/bulk")) {
                (s.token())
                input type="hidden" name="verb" value=(verb.word());
                // The instances that were counted, even if others match when the form is sent.
                @if has_more { input type="hidden" name="all" value="true"; }
                @else { input type="hidden" name="ids" value=(ids.join(",")); }
                (kept(&visit.query))
                @if let Some(fields) = fields { (fields) }
                div.buttons {
                    button.primary[verb != Verb::Cancel].danger[verb == Verb::Cancel] type="submit" { (button(verb)) " " @if has_more { "all of them" } @else { (count) } }
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

/// The members to replace that the form names.
fn set_of(visit: &Visit) -> Result<Json, Problem> {
    let text = visit.form.get("set").unwrap_or_default();
    let set = Json::parse("members", text)?;
    if !text.trim_start().starts_with('{') {
        return Err(Problem::invalid(
            "write the members to replace as a JSON object, such as {\"carrier\": \"post\"}",
        ));
    }
    Ok(set)
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
            (filter.after, filter.after_at) = (page.next, page.next_at);
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
    let verb = parse(visit.form.get("verb"))?;
    if visit.form.get("all").is_some() {
        return act_on_all(&visit, verb).await;
    }
    let ids: Vec<i64> =
        visit.form.get("ids").unwrap_or_default().split(',').filter_map(|id| id.parse().ok()).collect();
    if ids.is_empty() || ids.len() > MAX {
        return Err(Problem::invalid(format!("a form acts on 1 to {MAX} instances")));
    }
    let body = match verb {
        Verb::Signal => Body::Signal(signal_of(&visit)?),
        Verb::Cancel => Body::Plain(json!({ "reason": visit.form.text("reason") })),
        Verb::Edit => Body::Edit { set: set_of(&visit)? },
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

/// What the form says of the work so far.
#[derive(Default)]
struct SoFar {
    done: u64,
    refused: u64,
}

/// Performs the action on the next of all that match, and shows how far it is. The page goes on by itself where scripts
/// run, and by a button elsewhere: whoever closes it stops the work, and nothing is lost.
async fn act_on_all(visit: &Visit, verb: Verb) -> Answered {
    let number_of = |name: &str| visit.form.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    let before = SoFar { done: number_of("done"), refused: number_of("refused") };
    let signal = if verb == Verb::Signal { Some(signal_of(visit)?) } else { None };
    let reason = visit.form.text("reason").filter(|_| verb == Verb::Cancel);
    let set = if verb == Verb::Edit { Some(set_of(visit)?) } else { None };
    let body = AllBody { verb: verb.word(), signal, reason, set };
    let keep = visit.form.only(&FILTERS);
    let limit = BATCH.to_string();
    let query = keep.with(&[("limit", Some(&limit)), ("cursor", visit.form.get("cursor"))]).query();
    let told = visit.act_by_query("/v1/instances/bulk", query.trim_start_matches('?'), &body).await?;
    let count = |name: &str| told[name].as_u64().unwrap_or_default();
    let now = SoFar { done: before.done + count("done"), refused: before.refused + count("refused") };
    match told["next"].as_str() {
        Some(next) => progress(visit, verb, &now, next),
        None => {
            let notice = format!("bulk-{}-{}", now.done, now.refused);
            visit.go(&format!("/instances{}", keep.with(&[("notice", Some(&notice))]).query()))
        }
    }
}

/// The body of a bulk request to the API.
#[derive(Serialize)]
struct AllBody {
    verb: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<SignalBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<Json>,
}

fn progress(visit: &Visit, verb: Verb, so_far: &SoFar, next: &str) -> Answered {
    let s = &visit.shell;
    let list = s.at(&format!("/instances{}", visit.form.only(&FILTERS).query()));
    visit.page(button(verb), &html! {
        h1 { (button(verb)) ": " span #so-far { (number(so_far.done)) } " so far" }
        section.card {
            @if so_far.refused > 0 { p { "Skipped " (number(so_far.refused)) " that had moved on in the meantime." } }
            p.muted { "Each step is in the audit log. Close this page to stop: what is done stays done, and the list shows what is left." }
            form #go-on data-goes-on method="post" action=(s.at("/instances/bulk")) {
                (s.token())
                input type="hidden" name="all" value="true";
                input type="hidden" name="verb" value=(verb.word());
                input type="hidden" name="cursor" value=(next);
                input type="hidden" name="done" value=(so_far.done);
                input type="hidden" name="refused" value=(so_far.refused);
                @for name in ["name", "payload", "dedup_key", "reason", "set"] {
                    @if let Some(value) = visit.form.get(name) { input type="hidden" name=(name) value=(value); }
                }
                (kept(&visit.form))
                div.buttons { button.primary type="submit" { "Go on" } a href=(list) { "Stop here" } }
            }
        }
    })
}

/// The request body for each instance.
#[derive(Clone, Serialize)]
#[serde(untagged)]
enum Body {
    Signal(SignalBody),
    Edit { set: Json },
    Plain(Value),
}

async fn one(visit: Arc<Visit>, verb: Verb, id: i64, body: Body) -> Result<Value, Problem> {
    visit.act(verb.route(), ("instance", &id.to_string()), &body).await
}
