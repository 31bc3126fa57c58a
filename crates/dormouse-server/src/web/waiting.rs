//! Which instances await which signal and since when, with a form to signal them all.

use dormouse::store::Filter;
use maud::{Markup, html};

use super::Answered;
use super::overview::awaited_row;
use super::visit::Visit;
use super::{form, instances, parts};
use crate::cursor;

const ROWS: usize = 50;

pub(super) async fn show(visit: Visit) -> Answered {
    match visit.query.text("signal") {
        Some(signal) => who(visit, signal).await,
        None => what(visit).await,
    }
}

async fn what(visit: Visit) -> Answered {
    let store = visit.client.store();
    let awaiting = store.backlog(Some(visit.caller.namespace.clone())).await?.awaiting;
    let (s, now) = (&visit.shell, store.about().await?.now);
    visit.page("Waiting", &html! {
        h1 { "Waiting" }
        p.muted { "Signals that instances await, and the instance that has waited longest. Choose a signal to list its instances and to signal them." }
        section.card #waiting data-live {
            @if awaiting.is_empty() {
                (parts::empty("No instance awaits a signal.", &html! {
                    "An instance appears here when a step awaits a signal, until the signal arrives or the wait times out."
                }))
            } @else {
                (parts::table("Signals", &parts::columns(&["Signal", "#Instances", "Oldest"]),
                    &html! { @for awaited in &awaiting { (awaited_row(s, awaited, now)) } }))
            }
        }
    })
}

async fn who(visit: Visit, signal: String) -> Answered {
    let (after, after_at) = cursor::after(visit.query.get("cursor"))?;
    let filter = Filter {
        awaiting: Some(signal.clone()),
        machine: visit.query.text("machine"),
        after,
        after_at,
        limit: ROWS,
        heads_only: true,
        ..Filter::default()
    };
    let page = visit.client.list(filter).await?;
    let now = visit.client.store().about().await?.now;
    let form = form::of_any_signal(&visit, &signal).await?;
    let sample = form.map_or_else(|| "null".to_owned(), |form| form::sample(&form));
    let (s, query) = (&visit.shell, visit.query.with(&[("notice", None)]));
    let next = cursor::next(&page);
    let next = next.map(|next| s.at(&format!("/waiting{}", query.with(&[("cursor", Some(&next))]).query())));
    let first = after.map(|_| s.at(&format!("/waiting{}", query.with(&[("cursor", None)]).query())));
    visit.page(
        &format!("Waiting for {signal}"),
        &html! {
            p.crumbs { a href=(s.at("/waiting")) { "Waiting" } }
            h1 { "Waiting for " (signal) }
            @if s.may_operate() { (signal_all(&visit, &signal, &sample)) }
            section.card #waiting data-live {
                @if page.instances.is_empty() {
                    (parts::empty("No instance awaits it now.", &html! {
                        "They may have been signalled, or their waits may have timed out."
                    }))
                } @else {
                    p.muted { "The instance that has waited longest comes first." }
                    (instances::rows(s, &page.instances, now, false))
                }
            }
            (parts::pager(first, next))
        },
    )
}

/// A form that leads to the page that shows how many there are and asks for confirmation.
fn signal_all(visit: &Visit, signal: &str, sample: &str) -> Markup {
    let s = &visit.shell;
    html! {
        details.actions #signal-all {
            summary.primary { "Signal all…" }
            form.panel method="get" action=(s.at("/instances/bulk")) {
                input type="hidden" name="verb" value="signal";
                input type="hidden" name="which" value="all";
                input type="hidden" name="awaiting" value=(signal);
                @if let Some(machine) = visit.query.get("machine") { input type="hidden" name="machine" value=(machine); }
                label for="all-payload" { "Payload of " (signal) ", as JSON" }
                textarea #all-payload name="payload" rows="4" spellcheck="false" { (sample) }
                button type="submit" { "Count them first" }
            }
        }
    }
}
