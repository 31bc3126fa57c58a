//! Transports: what each has to send or waits for, and what went wrong.

use std::collections::BTreeMap;

use dormouse::jiff::Timestamp;
use dormouse::store::InteractionFilter;
use dormouse::{INTERACTION_API, Interaction, InteractionStatus, TroubleKind};
use maud::html;

use super::Answered;
use super::json::short;
use super::parts::{self, number, time};
use super::visit::Visit;

/// How many open interactions are looked at.
const ROWS: usize = 500;

/// What is open at one transport.
#[derive(Default)]
struct Open {
    pending: u64,
    dispatched: u64,
    oldest: Option<Timestamp>,
    /// How many were tried and not sent, the last reason, and when the next is tried again.
    failing: u64,
    error: Option<String>,
    next_try: Option<Timestamp>,
}

impl Open {
    fn add(&mut self, one: &Interaction) {
        match one.status {
            // What people are asked is sent to nobody: it waits from the start.
            InteractionStatus::Pending if one.transport != INTERACTION_API => self.pending += 1,
            _ => self.dispatched += 1,
        }
        self.oldest = self.oldest.into_iter().chain(one.opened_at).min();
        if let Some(error) = one.error.as_ref().filter(|_| one.sends > 0) {
            self.failing += 1;
            self.error = Some(error.clone());
            self.next_try = self.next_try.into_iter().chain(one.send_at).min();
        }
    }
}

pub(super) async fn show(visit: Visit) -> Answered {
    let now = visit.client.store().about().await?.now;
    let mut transports = BTreeMap::<String, Open>::new();
    let mut has_more = false;
    for status in [InteractionStatus::Pending, InteractionStatus::Dispatched] {
        let filter = InteractionFilter { status: Some(status), limit: ROWS, ..InteractionFilter::default() };
        let page = visit.client.interactions(filter).await?;
        has_more |= page.more;
        for one in &page.items {
            transports.entry(one.transport.clone()).or_default().add(one);
        }
    }
    let troubles = visit.client.troubles().await?;
    let is_served = |name: &str| {
        !troubles.iter().any(|trouble| trouble.kind == TroubleKind::NobodySends && trouble.name == name)
    };
    let columns =
        ["Transport", "Health", "#To be sent", "#Waits for an answer", "Oldest", "Last error", "Next try"];
    visit.page("Transports", &html! {
        h1 { "Transports" }
        p.muted { "How requests leave, and which of them are open. A transport that cannot send tries again by itself." }
        section.card #transports data-live data-live-every="2" {
            @if transports.is_empty() {
                (parts::empty("Nothing waits for an answer.", &html! { "Units that are dispatched appear here until they are answered." }))
            } @else {
                @if has_more { p.muted { "Counted over the oldest " (number(ROWS as u64)) " of each kind." } }
                (parts::table("Transports", &parts::columns(&columns), &html! {
                    @for (name, open) in &transports {
                        tr data-transport=(name) {
                            th scope="row" { (parts::named(name)) }
                            td { @if !is_served(name) { span.bad { "no live worker has it" } } @else if open.failing > 0 { span.bad { (number(open.failing)) " cannot be sent" } } @else { "ok" } }
                            td.num { (number(open.pending)) }
                            td.num { (number(open.dispatched)) }
                            td { @if let Some(at) = open.oldest { (time(at, now)) } }
                            td.wide { @if let Some(error) = &open.error { span.bad { (short(error, 120)) } } }
                            td { @if let Some(at) = open.next_try { (time(at, now)) } }
                        }
                    }
                }))
            }
        }
    })
}
