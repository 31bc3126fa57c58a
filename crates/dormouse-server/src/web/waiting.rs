//! Who waits for which signal, and since when; with a form to signal them all.

use dormouse::InstanceId;
use dormouse::store::Filter;
use maud::{Markup, html};

use super::Answered;
use super::overview::awaited_row;
use super::visit::Visit;
use super::{form, instances, parts};
use crate::cursor::{self, List};

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
        p.muted { "Signals that instances are parked on, and who has been parked longest. Choose one to see them all, and to signal them." }
        section.card #waiting data-live {
            @if awaiting.is_empty() {
                (parts::empty("Nobody waits for a signal.", &html! {
                    "An instance is here from when a step awaits a signal until it comes, or its timeout does."
                }))
            } @else {
                (parts::table("Signals", &parts::columns(&["Signal", "#Instances", "Oldest"]),
                    &html! { @for awaited in &awaiting { (awaited_row(s, awaited, now)) } }))
            }
        }
    })
}

async fn who(visit: Visit, signal: String) -> Answered {
    let after =
        visit.query.get("cursor").map(|cursor| cursor::decode(List::Instances, cursor)).transpose()?;
    let filter = Filter {
        awaiting: Some(signal.clone()),
        machine: visit.query.text("machine"),
        after: after.map(InstanceId),
        limit: ROWS,
        heads_only: true,
        ..Filter::default()
    };
    let page = visit.client.list(filter).await?;
    let now = visit.client.store().about().await?.now;
    let form = form::of_any_signal(&visit, &signal).await?;
    let sample = form.map_or_else(|| "null".to_owned(), |form| form::sample(&form));
    let (s, query) = (&visit.shell, visit.query.with(&[("notice", None)]));
    let next = page.next.map(|id| cursor::encode(List::Instances, id.0));
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
                    (parts::empty("Nobody waits for it now.", &html! {
                        "They may have been signalled meanwhile, or their timeouts came first."
                    }))
                } @else {
                    p.muted { "Who has waited longest comes first." }
                    (instances::rows(s, &page.instances, now, false))
                }
            }
            (parts::pager(first, next))
        },
    )
}

/// Leads to the page that says how many there are, and asks.
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
