//! Transports: what each has to send or waits for, and what went wrong.

use std::collections::BTreeMap;

use dormouse::jiff::Timestamp;
use dormouse::store::{BreakerStatus, Held, InteractionFilter, TransportView};
use dormouse::{DEFAULT_NAMESPACE, INTERACTION_API, Interaction, InteractionStatus, TroubleKind};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::Answered;
use super::json::short;
use super::layout::Shell;
use super::parts::{self, number, time};
use super::visit::Visit;
use crate::problem::Problem;

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
    let known = visit.client.transports().await?;
    let may_change = visit.shell.may_administer() && visit.client.namespace() == DEFAULT_NAMESPACE;
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
        @if !known.is_empty() { (limited(&visit.shell, &known, may_change, now)) }
        @if may_change { (set_form(&visit.shell)) }
    })
}

/// What limits the sends of each transport, and what they wait for.
fn limited(s: &Shell, known: &[TransportView], may_change: bool, now: Timestamp) -> Markup {
    let columns = ["Transport", "Rate", "In flight", "Breaker", "Waits for", "Last failure"];
    html! {
        section.card #sends data-live data-live-every="2" {
            h2 { "Limits" }
            p.muted { "They hold for all workers and namespaces." }
            (parts::table("Limits of transports", &html! {
                (parts::columns(&columns))
                @if may_change { th scope="col" { "Action" } }
            }, &html! {
                @for one in known {
                    tr #{"sends-" (one.name)} data-sends=(one.name) {
                        th scope="row" { (parts::named(&one.name)) }
                        td { (rate(one)) }
                        td { (number(one.in_flight)) @if let Some(width) = one.limits.in_flight { " of " (width) } }
                        td { (breaker(one, now)) }
                        td { (held(one, now)) }
                        td.wide { @if let Some(error) = &one.breaker.error { span.bad { (short(error, 120)) } } }
                        @if may_change { td { @if one.breaker.status != BreakerStatus::Closed { (close_form(s, &one.name)) } } }
                    }
                }
            }))
        }
    }
}

fn rate(transport: &TransportView) -> Markup {
    html! {
        @match transport.limits.rate {
            Some(rate) => { (rate.count) " in " (format!("{:?}", rate.period)) ", " (rate.burst) " at once" }
            None => { span.muted { "none" } }
        }
    }
}

fn breaker(transport: &TransportView, now: Timestamp) -> Markup {
    let state = &transport.breaker;
    html! {
        @match (state.status, transport.limits.breaker) {
            (BreakerStatus::Open, _) => {
                span.bad { "open" } " after " (number(state.failures.into())) " failures"
                @if let Some(until) = state.open_until { ", until " (time(until, now)) }
            }
            (BreakerStatus::HalfOpen, _) => {
                span.bad { "half open" } " after " (number(state.failures.into())) " failures: one probe at a time"
            }
            (BreakerStatus::Closed, None) => { span.muted { "none" } }
            (BreakerStatus::Closed, Some(_)) => { "closed" }
        }
    }
}

fn held(transport: &TransportView, now: Timestamp) -> Markup {
    let what = match transport.held {
        None | Some(Held::Busy) => return html! {},
        Some(Held::Rate) => "its turn",
        Some(Held::InFlight) => "a place",
        Some(Held::Breaker) => "the breaker",
    };
    html! { (what) @if let Some(until) = transport.held_until { ", until " (time(until, now)) } }
}

fn close_form(s: &Shell, name: &str) -> Markup {
    html! {
        form.inline method="post" action=(s.at("/transports/close")) {
            (s.token())
            input type="hidden" name="name" value=(name);
            button type="submit" aria-label=(format!("Close the breaker of {name}")) { "Close" }
        }
    }
}

fn set_form(s: &Shell) -> Markup {
    html! {
        form.card #set method="post" action=(s.at("/transports")) {
            h2 { "Limit a transport" }
            p.muted {
                "It holds at once, for all workers and namespaces. An empty field stays as it is; " code { "off" }
                " means no limit; " code { "declared" } " is what the code says."
            }
            (s.token())
            label for="name" { "Transport" }
            input #name name="name" required maxlength="255";
            label for="rate" { "Sends in a second" }
            input #rate name="rate" maxlength="20";
            label for="in_flight" { "Sent and not answered at a time" }
            input #in_flight name="in_flight" maxlength="20";
            label for="breaker" { "Failures in a row that open its breaker" }
            input #breaker name="breaker" maxlength="20";
            button.primary type="submit" { "Set" }
        }
    }
}

pub(super) async fn set(visit: Visit) -> Answered {
    let (mut body, mut reset) = (Map::new(), Vec::new());
    for (field, value) in [
        ("rate", (|count| json!({ "count": count })) as fn(u32) -> Value),
        ("in_flight", |width| json!(width)),
        ("breaker", |failures| json!({ "failures": failures })),
    ] {
        match visit.form.get(field).unwrap_or_default().trim() {
            "" => {}
            "off" => drop(body.insert(field.to_owned(), Value::Null)),
            "declared" => reset.push(field),
            text => {
                let number = text.parse().map_err(|_| {
                    let shown = short(text, 40);
                    Problem::invalid(format!(
                        "{shown:?} is not a number: write a number, `off` or `declared`"
                    ))
                })?;
                body.insert(field.to_owned(), value(number));
            }
        }
    }
    body.insert("reset".to_owned(), json!(reset));
    let name = visit.form.get("name").unwrap_or_default();
    visit.act("/v1/transports/{transport}", ("transport", name), &body).await?;
    visit.go("/transports?notice=limited")
}

pub(super) async fn close(visit: Visit) -> Answered {
    let name = visit.form.get("name").unwrap_or_default();
    visit.act("/v1/transports/{transport}/close", ("transport", name), &json!({})).await?;
    visit.go("/transports?notice=unblocked")
}
