//! The history of an instance: its events, how long they took, and what they changed.

use dormouse::jiff::Timestamp;
use dormouse::store::{Bounds, Events};
use dormouse::{Event, Instance, Run};
use maud::{Markup, html};

use super::diff::{self, Change, Changes, TOLD_MAX};
use super::layout::Shell;
use super::parts::{self, absolute, span, time};
use super::visit::Visit;
use super::{chart, json};
use crate::problem::Problem;

const EVENTS: usize = 50;
/// The most bytes of states and data on a page of events; a longer history continues on the next page. This much is
/// read, compared and written fast enough that it needs no thread of its own.
const EVENTS_BYTES_MAX: usize = 256 * 1024;
const VALUE_CHARS_MAX: usize = 120;

/// A part of a history, oldest first.
pub(super) struct Timeline {
    /// Includes the event before the first one shown, if any, for comparison.
    events: Vec<Event>,
    before: Option<Event>,
    /// The event after the last of these, if there is one.
    is_past: bool,
}

impl Timeline {
    /// The steps that these events led to, in order.
    pub(super) fn steps(&self) -> Vec<String> {
        let mut steps: Vec<String> = self.events.iter().map(|event| event.step.clone()).collect();
        steps.dedup();
        steps
    }
}

/// The newest events, or those before the event in the address.
pub(super) async fn read(visit: &Visit, instance: &Instance) -> Result<Timeline, Problem> {
    let asked = visit.query.get("before").map(str::parse::<u64>).transpose();
    let before = asked.map_err(|_| Problem::invalid("`before` is not the number of an event"))?;
    let end = before.unwrap_or(u64::MAX).min(instance.seq + 1);
    // Read one more than is shown, to compare the first one with the event before it.
    let bounds = Bounds { rows_max: EVENTS + 1, bytes_max: EVENTS_BYTES_MAX };
    let read = visit.client.store().history(instance.id, Events::Before(end), bounds).await?;
    let mut events: Vec<Event> = read.items.into_iter().rev().collect();
    let before = (read.more && events.len() > 1 || events.len() > EVENTS).then(|| events.remove(0));
    Ok(Timeline { events, before, is_past: end <= instance.seq })
}

pub(super) fn show(s: &Shell, instance: &Instance, timeline: &Timeline, now: Timestamp) -> Markup {
    let Timeline { events, before, is_past } = timeline;
    let here = format!("/instances/{}", instance.id);
    let befores = std::iter::once(before.as_ref()).chain(events.iter().map(Some));
    let pairs: Vec<_> = befores.zip(events).collect();
    let took = |before: Option<&Event>, event: &Event| {
        before.map(|before| event.at.duration_since(before.at).as_millis().max(0))
    };
    let longest = pairs.iter().filter_map(|(before, event)| took(*before, event)).max().unwrap_or(0);
    html! {
        section.card {
            h2 { "History" @if *is_past { span.muted { " (earlier)" } } }
            @if !events.is_empty() {
                p { a href=(s.at(&format!("{here}/timeline"))) { "Timeline" } " · " a href=(s.at(&format!("{here}/at"))) { "State at any moment" } }
            }
            @if events.is_empty() {
                (parts::empty("Nothing is recorded.", &html! {
                    "Its machine or engine keeps no history, or the history was removed."
                }))
            } @else {
                (parts::table("History, newest first", &parts::columns(&["##", "What happened", "After", "When"]), &html! {
                    @for (before, event) in pairs.iter().rev() {
                        tr #{"event-" (event.seq)} data-event=(event.seq) data-kind=(event.kind.as_str()) {
                            td.num { (event.seq) }
                            td.wide {
                                strong { (event.kind.as_str()) } " " span.muted.steps { (moved(*before, event)) }
                                (changed(*before, event))
                                (ran(event))
                                details { summary { "State and more" }
                                    @if let Some(data) = &event.data { h3 { "Data" } (json::show(data.as_str())) }
                                    h3 { "State after it" } (json::show(event.state.as_str()))
                                    @if s.may_operate() {
                                        @let fork = s.at(&format!("{here}/fork?seq={}", event.seq));
                                        p { a href=(fork) { "Fork from event " (event.seq) } }
                                    }
                                }
                            }
                            td.bar { @if let Some(ms) = took(*before, event) { (span(ms)) (chart::share(ms as u64, longest as u64)) } }
                            td title=(absolute(event.at)) { (time(event.at, now)) }
                        }
                    }
                }))
            }
            nav.pager aria-label="Pages of the history" {
                @if *is_past { a href=(s.at(&here)) { "Newest" } }
                @if let Some(first) = events.first().filter(|first| first.seq > 1) {
                    a href=(s.at(&format!("{here}?before={}", first.seq))) { "Earlier" }
                }
            }
        }
    }
}

/// Where an event led: the step that completed first, then the next one.
fn moved(before: Option<&Event>, event: &Event) -> Markup {
    html! {
        @if let Some(before) = before.filter(|before| before.step != event.step) { (before.step) " → " }
        (event.step)
    }
}

/// How long the step that led to an event ran, and what it last reported.
fn ran(event: &Event) -> Markup {
    let Some(Run { started_at, took_us, progress }) = &event.run else { return html! {} };
    html! {
        p.muted title=(format!("started at {}", absolute(*started_at))) {
            "its step ran " (span(i128::from(took_us / 1000)))
            @if let Some(progress) = progress { ", last at " (json::short(progress.as_str(), VALUE_CHARS_MAX)) }
        }
    }
}

fn changed(before: Option<&Event>, event: &Event) -> Markup {
    let Some(before) = before else { return html! {} };
    difference(before.state.as_str(), event.state.as_str())
}

/// What is different between two states.
pub(super) fn difference(before: &str, after: &str) -> Markup {
    let changes = match diff::changes(before, after) {
        Changes::Told(changes) => changes,
        Changes::Unread => {
            return html! { p.muted { "It changed the state, but the state is too long to compare here." } };
        }
    };
    let value = |value: &Option<String>| value.as_deref().map(|value| json::short(value, VALUE_CHARS_MAX));
    html! {
        @if !changes.is_empty() {
            ul.diff aria-label="Changes" {
                @for change in changes.iter().take(TOLD_MAX) {
                    @let Change { path, before, after } = change;
                    li {
                        code.path { (if path.is_empty() { "state" } else { path }) } " "
                        @if let Some(before) = value(before) { del { (before) } " " }
                        @if let Some(after) = value(after) { ins { (after) } }
                    }
                }
                @if changes.len() > TOLD_MAX { li.muted { "and more" } }
            }
        }
    }
}
