//! The signals in an instance's inbox, with forms to drop and edit them.

use dormouse::jiff::Timestamp;
use dormouse::store::{Bounds, Portion};
use dormouse::{InboxSignal, Instance, Json, SignalId};
use maud::{Markup, html};
use serde::Serialize;

use super::layout::Shell;
use super::parts::{self, number, time};
use super::visit::Visit;
use super::{Answered, act, form, json};
use crate::problem::Problem;

/// How many signals to show at once.
const ROWS: usize = 20;
/// The most bytes of payloads to read for the page.
const BYTES_MAX: usize = 256 * 1024;

/// A part of an inbox.
pub(super) struct Inbox {
    /// Each signal, and why its machine cannot read it.
    kept: Vec<(InboxSignal, Option<String>)>,
    /// Whether it begins after the first signal.
    is_later: bool,
    more: bool,
}

/// The first signals, or those after the one in the address.
pub(super) async fn read(visit: &Visit, instance: &Instance) -> Result<Inbox, Problem> {
    let asked = visit.query.get("signals_after").map(str::parse::<i64>).transpose();
    let after = asked.map_err(|_| Problem::invalid("`signals_after` is not the number of a signal"))?;
    let bounds = Bounds { rows_max: ROWS, bytes_max: BYTES_MAX };
    let page = match instance.inbox {
        0 => Portion::default(),
        _ => visit.client.inbox_page(instance.id, after.map(SignalId), bounds).await?,
    };
    let unreadable = visit.client.unreadable(instance, &page.items).await?;
    let kept = page.items.into_iter().zip(unreadable).collect();
    Ok(Inbox { kept, is_later: after.is_some(), more: page.more })
}

/// The part of the inbox that the page shows.
pub(super) fn card(s: &Shell, instance: &Instance, inbox: &Inbox, now: Timestamp) -> Markup {
    let Inbox { kept, is_later, more } = inbox;
    let here = format!("/instances/{}", instance.id);
    let next = kept.last().filter(|_| *more).map(|(last, _)| last.id.0);
    html! {
        section.card {
            h2 { "Inbox" @if instance.inbox > 0 { " " span.count #inbox-count { (number(u64::from(instance.inbox))) } } }
            @if kept.is_empty() && instance.inbox > 0 && instance.status.is_terminal() {
                p.muted { "Its signals are put away. A retry brings them back." }
            } @else if kept.is_empty() {
                (parts::empty("No signal waits here.", &html! {
                    "The inbox keeps signals until the instance consumes them."
                }))
            } @else if *more || *is_later {
                p.muted { (kept.len()) " of " (number(u64::from(instance.inbox))) " are shown, in order of arrival." }
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
            @if *is_later || next.is_some() {
                nav.pager aria-label="Pages of the inbox" {
                    @if *is_later { a href=(s.at(&here)) { "First signals" } }
                    @if let Some(next) = next { a rel="next" href=(s.at(&format!("{here}?signals_after={next}#inbox"))) { "Next signals" } }
                }
            }
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
