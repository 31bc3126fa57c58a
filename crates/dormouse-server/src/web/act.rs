//! What can be done to one instance: its forms, each of which becomes a request to the API.

use dormouse::{Declaration, Instance, Json, Status};
use maud::{Markup, html};
use serde::Serialize;
use serde_json::{Value, json};

use super::Answered;
use super::layout::Shell;
use super::visit::Visit;
use super::{form, json as document, parts};
use crate::access;
use crate::problem::Problem;

/// Forms for signals that it waits for; more names than this are written by hand.
const AWAITED_FORMS: usize = 4;

/// The actions that make sense for an instance as it is.
pub(super) fn bar(s: &Shell, declared: Option<&Declaration>, instance: &Instance) -> Markup {
    let here = format!("/instances/{}", instance.id);
    let is_live = !instance.status.is_terminal();
    let can_retry = matches!(instance.status, Status::Failed | Status::Cancelled);
    html! {
        div #actions.actions data-live role="group" aria-label="Actions" {
            @if is_live {
                (signal_forms(s, declared, instance))
                @if instance.paused { (parts::button(s, &format!("{here}/resume"), "", "Resume", None)) }
                @else { (parts::button(s, &format!("{here}/pause"), "", "Pause", None)) }
                details #cancel {
                    summary { "Cancel…" }
                    div.panel {
                        p { "It ends now, and its live children with it. What it did stays done." }
                        (parts::button(s, &format!("{here}/cancel"), "danger", "Cancel this instance", None))
                    }
                }
            }
            @if can_retry {
                (parts::button(s, &format!("{here}/retry"), "primary", "Retry", None))
            }
            @if instance.seq > 0 {
                a.button href=(s.at(&format!("{here}/fork?seq={}", instance.seq))) { "Fork…" }
            }
        }
    }
}

/// A form for each signal that it waits for and whose payload is known, and one for any other.
fn signal_forms(s: &Shell, declared: Option<&Declaration>, instance: &Instance) -> Markup {
    let form_of = |name: &str| declared?.accepted(name).map(|accepted| &accepted.form);
    let awaited = instance.awaits.iter().take(AWAITED_FORMS);
    let awaited: Vec<_> = awaited.filter_map(|name| Some((name, form_of(name)?))).collect();
    let accepted = declared.map(|declared| declared.accepts.as_slice()).unwrap_or_default();
    let action = s.at(&format!("/instances/{}/signal", instance.id));
    let first = instance.awaits.first().filter(|_| awaited.is_empty());
    html! {
        details #signal {
            summary.primary { "Signal…" }
            @for (name, form) in &awaited {
                form.panel #{"signal-for-" (name)} method="post" action=(action) data-signal=(name) {
                    h2 { (name) }
                    (s.token()) (once())
                    input type="hidden" name="name" value=(name);
                    (form::inputs(Some(*form), &format!("{name}-"), "payload", "Payload"))
                    button.primary type="submit" { "Send " (name) }
                }
            }
            form.panel #signal-other method="post" action=(action) data-signal="" {
                @if !awaited.is_empty() { h2 { "Another signal" } }
                (s.token()) (once())
                label for="signal-name" { "Name" }
                input #signal-name name="name" value=[first] list="signal-names" required spellcheck="false";
                datalist #signal-names { @for accepted in accepted { option value=(accepted.signal) {} } }
                label for="signal-payload" { "Payload, as JSON" }
                textarea #signal-payload name="payload" rows="4" spellcheck="false" placeholder="null" {}
                button type="submit" { "Send signal" }
            }
        }
    }
}

/// A dedup key: sent twice by mistake, the signal is delivered once.
pub(super) fn once() -> Markup {
    html! {
        @if let Ok(once) = access::random() {
            input type="hidden" name="dedup_key" value={"page-" (access::hex(&once[..12]))};
        }
    }
}

pub(super) async fn signal(visit: Visit) -> Answered {
    let name = visit.form.text("name").ok_or_else(|| Problem::invalid("a signal needs a name"))?;
    let instance = visit.instance().await?;
    let form = form::of_signal(&visit.client, &instance, &name).await?;
    let payload = form::read(&visit.form, form.as_ref(), "payload")?;
    let body = SignalBody { name, payload, dedup_key: visit.form.text("dedup_key") };
    let told = on(&visit, "/v1/instances/{instance}/signals", &body).await?;
    let notice = if told["delivered"] == "duplicate" { "duplicate" } else { "signalled" };
    back(&visit, notice)
}

/// A signal, as the API takes it.
#[derive(Clone, Serialize)]
pub(super) struct SignalBody {
    pub(super) name: String,
    pub(super) payload: Option<Json>,
    pub(super) dedup_key: Option<String>,
}

pub(super) async fn cancel(visit: Visit) -> Answered {
    let told = on(&visit, "/v1/instances/{instance}/cancel", &json!({})).await?;
    let notice = match told["cancel"].as_str() {
        Some("requested") => "requested",
        Some("already_ended") => "ended",
        _ => "cancelled",
    };
    back(&visit, notice)
}

pub(super) async fn retry(visit: Visit) -> Answered {
    on(&visit, "/v1/instances/{instance}/retry", &json!({})).await?;
    back(&visit, "retried")
}

pub(super) async fn pause(visit: Visit) -> Answered {
    on(&visit, "/v1/instances/{instance}/pause", &json!({})).await?;
    back(&visit, "paused")
}

pub(super) async fn resume(visit: Visit) -> Answered {
    on(&visit, "/v1/instances/{instance}/resume", &json!({})).await?;
    back(&visit, "resumed")
}

async fn on(visit: &Visit, route: &'static str, body: &impl Serialize) -> Result<Value, Problem> {
    visit.act(route, ("instance", visit.path("instance")), body).await
}

fn back(visit: &Visit, notice: &str) -> Answered {
    let instance = super::fields::segment(visit.path("instance"));
    visit.go(&format!("/instances/{instance}?notice={notice}"))
}

/// The form to start another instance from an event of this one.
pub(super) async fn fork_form(visit: Visit) -> Answered {
    let instance = visit.instance().await?;
    let seq = visit.query.get("seq").and_then(|seq| seq.parse::<u64>().ok()).unwrap_or(instance.seq);
    let missing = || dormouse::Error::NoEvent { id: instance.id, seq };
    let after = seq.checked_sub(1).ok_or_else(missing)?;
    let event = visit.client.store().history(instance.id, after, 1).await?.pop();
    let event = event.filter(|event| event.seq == seq).ok_or_else(missing)?;
    let declared = visit.client.declaration(&instance.machine, event.version).await?;
    let steps = declared.map(|declared| declared.steps.clone()).unwrap_or_default();
    let (s, name) = (&visit.shell, parts::name(&instance));
    let here = format!("/instances/{}", instance.id);
    visit.page(&format!("Fork {name}"), &html! {
        p.crumbs { a href=(s.at("/instances")) { "Instances" } " / " a href=(s.at(&here)) { (name) } }
        h1 { "Fork " (name) " from event " (seq) }
        p.muted {
            "Another instance of " (instance.machine) " starts where this one was after "
            strong { (event.kind.as_str()) } ". This one is not changed."
        }
        form.card #fork method="post" action=(s.at(&format!("{here}/fork"))) {
            (s.token())
            input type="hidden" name="seq" value=(seq);
            label for="fork-step" { "Step" }
            input #fork-step name="step" value=(event.step) list="steps" required spellcheck="false";
            datalist #steps { @for step in &steps { option value=(step) {} } }
            label for="fork-state" { "State, as JSON" }
            textarea #fork-state name="state" rows="16" spellcheck="false" { (document::pretty(event.state.as_str())) }
            label for="fork-key" { "Key " span.muted { "(none unless you write one)" } }
            input #fork-key name="key" spellcheck="false";
            label for="fork-queue" { "Queue" }
            input #fork-queue name="queue" value=(instance.queue) spellcheck="false";
            div.buttons { button.primary type="submit" { "Start the fork" } a href=(s.at(&here)) { "Back" } }
        }
    })
}

/// A fork, as the API takes it.
#[derive(Serialize)]
struct ForkBody {
    seq: u64,
    key: Option<String>,
    step: Option<String>,
    state: Option<Json>,
    queue: Option<String>,
}

pub(super) async fn fork(visit: Visit) -> Answered {
    let seq = visit.form.get("seq").and_then(|seq| seq.parse::<u64>().ok());
    let seq = seq.ok_or_else(|| Problem::invalid("the number of the event is missing"))?;
    let body = ForkBody {
        seq,
        key: visit.form.text("key"),
        step: visit.form.text("step"),
        state: form::read(&visit.form, None, "state")?,
        queue: visit.form.text("queue"),
    };
    let told = on(&visit, "/v1/instances/{instance}/fork", &body).await?;
    let id = told["id"].as_i64().unwrap_or_default();
    visit.go(&format!("/instances/{id}?notice=forked"))
}
