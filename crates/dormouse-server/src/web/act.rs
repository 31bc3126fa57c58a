//! The actions on one instance: forms that each become a request to the API.

use dormouse::store::{Bounds, Events};
use dormouse::{Declaration, Instance, Json, Status, TAGS_MAX};
use maud::{Markup, html};
use serde::Serialize;
use serde_json::{Value, json};

use super::Answered;
use super::layout::Shell;
use super::visit::Visit;
use super::{form, json as document, parts};
use crate::access;
use crate::problem::Problem;

/// How many of the awaited signals get a form of their own; other names can be typed.
const AWAITED_FORMS: usize = 4;

/// The actions that make sense for an instance in its current status.
pub(super) fn bar(s: &Shell, declared: Option<&Declaration>, instance: &Instance) -> Markup {
    let here = format!("/instances/{}", instance.id);
    let is_live = !instance.status.is_terminal();
    let can_retry = matches!(instance.status, Status::Failed | Status::Cancelled);
    html! {
        div #actions.actions data-live role="group" aria-label="Actions" {
            @if is_live {
                (signal_forms(s, declared, instance))
                @if instance.paused { (guarded(s, instance, "resume", "", "Resume")) }
                // No expected seq: a user who wants it to stop wants that wherever it is by now.
                @else { (parts::button(s, &format!("{here}/pause"), "", "Pause", None)) }
                (cancel_form(s, instance))
            }
            @if can_retry { (guarded(s, instance, "retry", "primary", "Retry")) }
            @if !matches!(instance.status, Status::Done | Status::Executing) { (state_form(s, instance)) }
            (tag_forms(s, instance))
            @if instance.seq > 0 {
                a.button href=(s.at(&format!("{here}/fork?seq={}", instance.seq))) { "Fork…" }
            }
        }
    }
}

/// A form with one button. It acts only if the instance has not moved since the page was loaded.
fn guarded(s: &Shell, instance: &Instance, verb: &str, class: &str, word: &str) -> Markup {
    html! {
        form.inline method="post" action=(s.at(&format!("/instances/{}/{verb}", instance.id))) {
            (s.token())
            input type="hidden" name="expected_seq" value=(instance.seq);
            button type="submit" class=(class) { (word) }
        }
    }
}

/// A form for another state. It acts only if the instance has not moved since the page was loaded.
fn state_form(s: &Shell, instance: &Instance) -> Markup {
    html! {
        details #edit {
            summary { "Edit the state…" }
            form.panel method="post" action=(s.at(&format!("/instances/{}/edit", instance.id))) {
                (s.token())
                input type="hidden" name="expected_seq" value=(instance.seq);
                p { "It stays where it is, at the step " (instance.step) "." }
                @if instance.state.as_str().len() > document::SHOWN_BYTES_MAX {
                    p.muted { "The state is too long for this page. Edit it with " code { "dormouse edit " (instance.id) } "." }
                } @else {
                    label for="edit-state" { "State, as JSON" }
                    textarea #edit-state name="state" rows="8" spellcheck="false" { (document::to_edit(instance.state.as_str())) }
                    button.primary type="submit" { "Save the state" }
                }
            }
        }
    }
}

fn cancel_form(s: &Shell, instance: &Instance) -> Markup {
    html! {
        details #cancel {
            summary { "Cancel…" }
            form.panel method="post" action=(s.at(&format!("/instances/{}/cancel", instance.id))) {
                (s.token())
                p { "It ends now, and its live children with it. What it did stays done." }
                label for="cancel-reason" { "Reason " span.muted { "(stored in its history)" } }
                input #cancel-reason name="reason" maxlength="1024";
                label.check {
                    input #cancel-seq type="checkbox" name="expected_seq" value=(instance.seq) checked;
                    " only if it has not moved since transition " (instance.seq)
                }
                button.danger type="submit" { "Cancel this instance" }
            }
        }
    }
}

/// A button to remove each tag, and a field to add one.
fn tag_forms(s: &Shell, instance: &Instance) -> Markup {
    let action = s.at(&format!("/instances/{}/tags", instance.id));
    html! {
        details #tagging {
            summary { "Tags…" }
            div.panel {
                @for tag in &instance.tags {
                    form.inline method="post" action=(action) {
                        (s.token())
                        input type="hidden" name="remove" value=(tag);
                        button type="submit" aria-label={"Remove the tag " (tag)} { (tag) " ×" } " "
                    }
                }
                @if instance.tags.len() < TAGS_MAX {
                    form #tag-add method="post" action=(action) {
                        (s.token())
                        label for="tag-new" { "Add a tag" }
                        input #tag-new name="add" maxlength="64" required spellcheck="false";
                        button type="submit" { "Add" }
                    }
                }
            }
        }
    }
}

/// A form for each awaited signal whose payload type is known, and one for any other signal.
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

/// A dedup key, so that a form sent twice by mistake delivers the signal once.
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

/// The body of a signal request to the API.
#[derive(Clone, Serialize)]
pub(super) struct SignalBody {
    pub(super) name: String,
    pub(super) payload: Option<Json>,
    pub(super) dedup_key: Option<String>,
}

/// The `seq` at which the page showed the instance.
pub(super) fn expected_seq(visit: &Visit) -> Result<Option<u64>, Problem> {
    let read = |text: &str| {
        text.parse().map_err(|_| Problem::invalid(format!("{text:?} is not a transition number")))
    };
    visit.form.get("expected_seq").map(read).transpose()
}

pub(super) async fn cancel(visit: Visit) -> Answered {
    let body = json!({ "reason": visit.form.text("reason"), "expected_seq": expected_seq(&visit)? });
    let told = on(&visit, "/v1/instances/{instance}/cancel", &body).await?;
    let notice = match told["cancel"].as_str() {
        Some("requested") => "requested",
        Some("already_ended") => "ended",
        _ => "cancelled",
    };
    back(&visit, notice)
}

pub(super) async fn retry(visit: Visit) -> Answered {
    let body = json!({ "expected_seq": expected_seq(&visit)? });
    on(&visit, "/v1/instances/{instance}/retry", &body).await?;
    back(&visit, "retried")
}

/// The body of an edit request to the API.
#[derive(Serialize)]
struct EditBody {
    state: Json,
    expected_seq: Option<u64>,
}

pub(super) async fn edit(visit: Visit) -> Answered {
    let state = form::read(&visit.form, None, "state")?;
    let state = state.ok_or_else(|| Problem::invalid("the state is missing: write it as JSON"))?;
    let body = EditBody { state, expected_seq: expected_seq(&visit)? };
    on(&visit, "/v1/instances/{instance}/edit", &body).await?;
    back(&visit, "restated")
}

pub(super) async fn pause(visit: Visit) -> Answered {
    let body = json!({ "expected_seq": expected_seq(&visit)? });
    on(&visit, "/v1/instances/{instance}/pause", &body).await?;
    back(&visit, "paused")
}

pub(super) async fn resume(visit: Visit) -> Answered {
    let body = json!({ "expected_seq": expected_seq(&visit)? });
    on(&visit, "/v1/instances/{instance}/resume", &body).await?;
    back(&visit, "resumed")
}

pub(super) async fn tag(visit: Visit) -> Answered {
    let named = |name| visit.form.text(name).into_iter().collect::<Vec<_>>();
    let body = json!({ "add": named("add"), "remove": named("remove") });
    on(&visit, "/v1/instances/{instance}/tags", &body).await?;
    back(&visit, "tagged")
}

async fn on(visit: &Visit, route: &'static str, body: &impl Serialize) -> Result<Value, Problem> {
    visit.act(route, ("instance", visit.path("instance")), body).await
}

pub(super) fn back(visit: &Visit, notice: &str) -> Answered {
    let instance = super::fields::segment(visit.path("instance"));
    visit.go(&format!("/instances/{instance}?notice={notice}"))
}

/// The form to start a new instance from an event of this one.
pub(super) async fn fork_form(visit: Visit) -> Answered {
    let instance = visit.instance().await?;
    let seq = visit.query.get("seq").and_then(|seq| seq.parse::<u64>().ok()).unwrap_or(instance.seq);
    let missing = || dormouse::Error::NoEvent { id: instance.id, seq };
    let after = seq.checked_sub(1).ok_or_else(missing)?;
    let events = visit.client.store().history(instance.id, Events::After(after), Bounds::rows(1)).await?;
    let event = events.items.into_iter().next();
    let event = event.filter(|event| event.seq == seq).ok_or_else(missing)?;
    let declared = visit.client.declaration(&instance.machine, event.version).await?;
    let steps = declared.map(|declared| declared.steps.clone()).unwrap_or_default();
    let (s, name) = (&visit.shell, parts::name(&instance));
    let here = format!("/instances/{}", instance.id);
    visit.page(&format!("Fork {name}"), &html! {
        p.crumbs { a href=(s.at("/instances")) { "Instances" } " / " a href=(s.at(&here)) { (name) } }
        h1 { "Fork " (name) " from event " (seq) }
        p.muted {
            "A new instance of " (instance.machine) " starts where this one was after "
            strong { (event.kind.as_str()) } ". This one does not change."
        }
        form.card #fork method="post" action=(s.at(&format!("{here}/fork"))) {
            (s.token())
            input type="hidden" name="seq" value=(seq);
            label for="fork-step" { "Step" }
            input #fork-step name="step" value=(event.step) list="steps" required spellcheck="false";
            datalist #steps { @for step in &steps { option value=(step) {} } }
            label for="fork-state" { "State, as JSON" }
            textarea #fork-state name="state" rows="16" spellcheck="false" { (document::to_edit(event.state.as_str())) }
            label for="fork-key" { "Key " span.muted { "(none unless you write one)" } }
            input #fork-key name="key" spellcheck="false";
            label for="fork-queue" { "Queue" }
            input #fork-queue name="queue" value=(instance.queue) spellcheck="false";
            div.buttons { button.primary type="submit" { "Start the fork" } a href=(s.at(&here)) { "Back" } }
        }
    })
}

/// The body of a fork request to the API.
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
