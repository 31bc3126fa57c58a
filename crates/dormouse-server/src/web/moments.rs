//! An instance as it was after any of its events: a slider over its history, the state then, and what has changed since.

use dormouse::jiff::Timestamp;
use dormouse::store::{Bounds, Events};
use dormouse::{Event, Instance};
use maud::{Markup, html};

use super::Answered;
use super::json;
use super::layout::Shell;
use super::parts::{self, absolute, time};
use super::timeline::difference;
use super::visit::Visit;
use crate::problem::Problem;

pub(super) async fn show(visit: Visit) -> Answered {
    let instance = visit.instance().await?;
    let now = visit.client.store().about().await?.now;
    let asked = visit.query.get("seq").map(str::parse::<u64>).transpose();
    let seq = asked.map_err(|_| Problem::invalid("`seq` is not the number of an event"))?;
    let seq = seq.unwrap_or(instance.seq).clamp(1, instance.seq.max(1));
    // The event, and the one before it to compare it with.
    let bounds = Bounds::rows(2);
    let read = visit.client.store().history(instance.id, Events::Before(seq + 1), bounds).await?;
    let mut events = read.items.into_iter();
    let (event, before) = (events.next(), events.next());
    let s = &visit.shell;
    visit.page(
        &format!("{} at event {seq}", parts::name(&instance)),
        &html! {
            p.crumbs { a href=(s.at("/instances")) { "Instances" } " / " (parts::link(s, &instance)) }
            h1 { "At event " (seq) " of " (instance.seq) }
            (slider(s, &instance, seq))
            @match event {
                Some(event) => (at(s, &instance, &event, before.as_ref(), now)),
                None => section.card { (parts::empty("Nothing is recorded here.", &html! {
                    "Its machine or engine keeps no history, or this part of it was removed."
                })) },
            }
        },
    )
}

fn slider(s: &Shell, instance: &Instance, seq: u64) -> Markup {
    let here = s.at(&format!("/instances/{}/at", instance.id));
    let link = |seq: u64, word: &str| html! { a href=(format!("{here}?seq={seq}")) { (word) } };
    html! {
        form.card #moments data-slides method="get" action=(here) {
            label for="moment" { "Event" }
            input #moment type="range" name="seq" min="1" max=(instance.seq.max(1)) value=(seq);
            div.buttons {
                button type="submit" { "Show" }
                @if seq > 1 { (link(1, "First")) (link(seq - 1, "Earlier")) }
                @if seq < instance.seq { (link(seq + 1, "Later")) (link(instance.seq, "Last")) }
            }
        }
    }
}

fn at(s: &Shell, instance: &Instance, event: &Event, before: Option<&Event>, now: Timestamp) -> Markup {
    html! {
        div.columns {
            section.card #then {
                h2 { (event.kind.as_str()) }
                p { "It was at " code { (event.step) } ", " span title=(absolute(event.at)) { (time(event.at, now)) } "." }
                h3 { "State" } (json::show(event.state.as_str()))
                @if let Some(data) = &event.data { h3 { "Data" } (json::show(data.as_str())) }
                @if s.may_operate() {
                    p { a href=(s.at(&format!("/instances/{}/fork?seq={}", instance.id, event.seq))) { "Fork from here" } }
                }
            }
            section.card #difference {
                h2 { "What this event changed" }
                (changed(before.map(|before| before.state.as_str()), event.state.as_str()))
                h2 { "What has changed since" }
                (changed(Some(event.state.as_str()), instance.state.as_str()))
            }
        }
    }
}

fn changed(before: Option<&str>, after: &str) -> Markup {
    match before {
        Some(before) if before == after => html! { p.muted { "Nothing." } },
        Some(before) => difference(before, after),
        None => html! { p.muted { "It is the first one." } },
    }
}
