//! The signals in an instance's inbox, with forms to drop and edit them.

use dormouse::jiff::Timestamp;
use dormouse::{InboxSignal, Instance, Json};
use maud::{Markup, html};
use serde::Serialize;

use super::layout::Shell;
use super::parts::{self, time};
use super::visit::Visit;
use super::{Answered, act, form, json};
use crate::problem::Problem;

/// A signal, and why its machine cannot read it.
pub(super) type Kept = (InboxSignal, Option<String>);

/// The part of the inbox that the page shows.
pub(super) fn card(s: &Shell, instance: &Instance, kept: &[Kept], more: bool, now: Timestamp) -> Markup {
    html! {
        section.card {
            h2 { "Inbox" }
            @if kept.is_empty() {
                (parts::empty("No signal waits here.", &html! {
                    "The inbox keeps signals until the instance consumes them."
                }))
            }
            @for (signal, unreadable) in kept {
                details #{"signal-" (signal.id.0)} open[unreadable.is_some()] {
                    summary {
                        strong { (signal.name) } " " (time(signal.at, now))
                        @if unreadable.is_some() { " " span.badge { "cannot be read" } }
                    }
                    @if let Some(reason) = unreadable { p.bad { (json::short(reason, 1_000)) } }
                    (json::show(signal.payload.as_str()))
                    @if let Some(dedup) = &signal.dedup_key { p.muted { "Dedup key " (dedup) } }
                    @if s.may_operate() { (repair(s, instance, signal)) }
                }
            }
            @if more { p.muted { "There are more. The API lists all of them." } }
        }
    }
}

/// Two forms. Each acts only if the instance has not moved since the page was loaded.
fn repair(s: &Shell, instance: &Instance, signal: &InboxSignal) -> Markup {
    let here = format!("/instances/{}/inbox/{}", instance.id, signal.id.0);
    let payload = format!("signal-payload-{}", signal.id.0);
    html! {
        details.repair #{"repair-" (signal.id.0)} {
            summary { "Repair…" }
            form.panel method="post" action=(s.at(&format!("{here}/edit"))) {
                (s.token())
                input type="hidden" name="expected_seq" value=(instance.seq);
                label for=(payload) { "Payload, as JSON" }
                textarea id=(payload) name="payload" rows="6" spellcheck="false" { (json::to_edit(signal.payload.as_str())) }
                button.primary type="submit" { "Save the payload" }
            }
            form.panel method="post" action=(s.at(&format!("{here}/drop"))) {
                (s.token())
                input type="hidden" name="expected_seq" value=(instance.seq);
                p { "A dropped signal is gone. It can be sent again." }
                button.danger type="submit" { "Drop this signal" }
            }
        }
    }
}

/// The body of an edit request to the API.
#[derive(Serialize)]
struct EditBody {
    payload: Json,
    expected_seq: Option<u64>,
}

pub(super) async fn edit(visit: Visit) -> Answered {
    let payload = form::read(&visit.form, None, "payload")?;
    let payload = payload.ok_or_else(|| Problem::invalid("the payload is missing: write it as JSON"))?;
    let body = EditBody { payload, expected_seq: act::expected_seq(&visit)? };
    on(&visit, "/v1/instances/{instance}/inbox/{signal}/edit", &body).await?;
    act::back(&visit, "edited")
}

pub(super) async fn drop(visit: Visit) -> Answered {
    let body = serde_json::json!({ "expected_seq": act::expected_seq(&visit)? });
    on(&visit, "/v1/instances/{instance}/inbox/{signal}/drop", &body).await?;
    act::back(&visit, "dropped")
}

async fn on(visit: &Visit, route: &'static str, body: &impl Serialize) -> Result<(), Problem> {
    let path = [("instance", visit.path("instance")), ("signal", visit.path("signal"))];
    visit.act_on(route, &path, body).await.map(std::mem::drop)
}
