//! The overview: activity, failures, what instances wait for and since when, workers and queues.

use dormouse::jiff::Timestamp;
use dormouse::store::{AWAITING_MAX, Awaited, Filter, InteractionFilter};
use dormouse::{INTERACTION_API, Instance, InteractionStatus, Status};
use maud::{Markup, html};

use super::Answered;
use super::chart;
use super::fields::query;
use super::json::short;
use super::layout::Shell;
use super::parts::{self, number, time};
use super::pulse::{BAR_S, BARS, Bar, Pulse};
use super::versions;
use super::visit::Visit;
use crate::api::Overview;

/// The most rows of each list; the pages behind them have the rest.
const ROWS: usize = 6;

pub(super) async fn show(visit: Visit) -> Answered {
    let overview = Overview::of(&visit.client).await?;
    let now = overview.now;
    let failed = Filter { status: Some(Status::Failed), limit: ROWS, heads_only: true, ..Filter::default() };
    let failed = visit.client.list(failed).await?.instances;
    let asked = visit.client.interactions(open_questions(ROWS + 1)).await?;
    let asked = asked.items.len() + usize::from(asked.more);
    let counted = Pulse::bars(&visit.app, visit.client.namespace(), now).await;
    let s = &visit.shell;
    visit.page(
        "Overview",
        &html! {
            div #overview data-live data-live-every="2" {
                h1 { "Overview" }
                (figures(s, &overview, asked))
                (rates(&counted.bars, counted.is_behind))
                div.columns {
                    div {
                        (waiting(s, &overview.awaiting, now))
                        (failures(s, &failed, now))
                    }
                    div {
                        (places(s, &overview))
                        (queues(s, &overview))
                    }
                }
            }
        },
    )
}

/// Open questions for people.
pub(super) fn open_questions(limit: usize) -> InteractionFilter {
    InteractionFilter {
        status: Some(InteractionStatus::Pending),
        transport: Some(INTERACTION_API.to_owned()),
        limit,
        ..InteractionFilter::default()
    }
}

fn figures(s: &Shell, overview: &Overview, asked: usize) -> Markup {
    let of = |is_it: fn(Status) -> bool| overview.count(is_it);
    let live = of(|status| !status.is_terminal());
    let parked = of(|status| matches!(status, Status::AwaitingSignal | Status::AwaitingCompletion));
    let failed = of(|status| status == Status::Failed);
    let workers = overview.live_workers().count();
    let asked = if asked > ROWS { format!("{ROWS}+") } else { asked.to_string() };
    let figure = |path: &str, id: &str, value: &str, word: &str, is_bad: bool| {
        html! {
            a.figure #{"figure-" (id)} href=(s.at(path)) data-bad[is_bad] { strong { (value) } span { (word) } }
        }
    };
    html! {
        div.figures {
            (figure("/instances", "live", &number(live), "live instances", false))
            (figure("/waiting", "parked", &number(parked), "waiting for a signal or an answer", false))
            (figure("/inbox", "asked", &asked, "questions for people", false))
            (figure("/instances?status=failed", "failed", &number(failed), "failed", failed > 0))
            (figure("/workers", "workers", &workers.to_string(), if workers == 1 { "worker" } else { "workers" }, workers == 0))
        }
        @if workers == 0 && live > 0 {
            p.warning {
                "No worker serves this namespace, so nothing moves. Start one with " code { "serve" } " or "
                code { "worker" } " of the program that has the machines."
            }
        } @else {
            (versions::warning(s, &overview.unserved()))
        }
    }
}

fn rates(bars: &[Bar], is_behind: bool) -> Markup {
    let minutes = BARS as i64 * BAR_S / 60;
    let chart = |class: &str, word: &str, pick: fn(&Bar) -> u64| {
        let values: Vec<u64> = bars.iter().map(pick).collect();
        // The last bar is still growing, so the rate uses only complete bars.
        let over = &values[values.len().saturating_sub(7)..values.len().saturating_sub(1)];
        let per_s = over.iter().sum::<u64>() as f64 / (over.len().max(1) as i64 * BAR_S) as f64;
        let total: u64 = values.iter().sum();
        let label = format!("{word}: {total} in the last {minutes} minutes, recently {per_s:.1} per second");
        html! {
            figure.rate {
                figcaption { strong { (format!("{per_s:.1}")) " /s" } span.muted { (word) } }
                (chart::bars(class, &label, &values))
            }
        }
    };
    html! {
        section.card aria-label="Rates" {
            div.rates {
                (chart("", "transitions", |bar| bar.transitions))
                (chart("started", "started", |bar| bar.started))
                (chart("done", "done", |bar| bar.done))
                (chart("failed", "failed and retried", |bar| bar.failed + bar.retried))
            }
            p.muted.small { "The last " (minutes) " minutes, a bar for each " (BAR_S) " seconds. Instances without a history are not counted."
                @if is_behind { " Still counting what happened before you came." } }
        }
    }
}

fn waiting(s: &Shell, awaiting: &[Awaited], now: Timestamp) -> Markup {
    html! {
        section.card {
            h2 { a href=(s.at("/waiting")) { "What waits for what" } }
            @if awaiting.is_empty() {
                (parts::empty("No instance awaits a signal.", &html! {
                    "Instances that await one are listed here."
                }))
            } @else {
                (parts::table("What waits for what", &parts::columns(&["Signal", "#Instances", "Oldest"]),
                    &html! { @for awaited in awaiting.iter().take(ROWS) { (awaited_row(s, awaited, now)) } }))
            }
        }
    }
}

pub(super) fn awaited_row(s: &Shell, awaited: &Awaited, now: Timestamp) -> Markup {
    let capped = if awaited.count >= AWAITING_MAX { "+" } else { "" };
    html! {
        tr {
            td { @for (index, name) in awaited.names.iter().enumerate() { @if index > 0 { " or " } (parts::waiting_link(s, name)) } }
            td.num { (number(awaited.count)) (capped) }
            td { a href=(s.at(&format!("/instances/{}", awaited.oldest))) { "#" (awaited.oldest) } ", " (time(awaited.since, now)) }
        }
    }
}

fn failures(s: &Shell, failed: &[Instance], now: Timestamp) -> Markup {
    html! {
        section.card {
            h2 { a href=(s.at("/instances?status=failed")) { "Latest failures" } }
            @if failed.is_empty() {
                (parts::empty("Nothing has failed.", &html! {
                    "Failed instances are listed here with the reason, and can be retried."
                }))
            } @else {
                (parts::table("Latest failures", &parts::columns(&["Instance", "Why", "When"]), &html! {
                    @for instance in failed {
                        tr #{"failed-" (instance.id)} {
                            td { (parts::link(s, instance)) }
                            td.wide { (short(instance.last_error.as_deref().unwrap_or("no reason was given"), 90)) }
                            td { (time(instance.ended_at.unwrap_or(instance.changed_at), now)) }
                        }
                    }
                }))
            }
        }
    }
}

fn places(s: &Shell, overview: &Overview) -> Markup {
    let count = |status: Status| overview.count(|is| is == status);
    let counts: Vec<(Status, u64)> = Status::ALL.into_iter().map(|status| (status, count(status))).collect();
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
    html! {
        section.card {
            h2 { a href=(s.at("/instances")) { "Where instances are" } }
            (parts::table("Instances by status", &parts::columns(&["Status", "#Instances", "Share"]), &html! {
                @for (status, count) in counts {
                    tr data-status=(status.as_str()) {
                        td { a.plain href=(s.at(&format!("/instances{}", query("status", status.as_str())))) { (parts::status(status)) } }
                        td.num { (number(count)) }
                        td.bar { (chart::share(count, most)) }
                    }
                }
            }))
        }
    }
}

fn queues(s: &Shell, overview: &Overview) -> Markup {
    let queues = overview.queues();
    html! {
        section.card {
            h2 { a href=(s.at("/queues")) { "Queues" } }
            @if queues.is_empty() {
                (parts::empty("No queue is served, and none has work.", &html! {
                    "A queue appears here as soon as a worker serves it or an instance waits in it."
                }))
            } @else {
                (parts::table("Queues", &parts::columns(&["Queue", "#Runnable", "Oldest", "#Workers"]), &html! {
                    @for queue in queues.iter().take(ROWS) {
                        tr {
                            td { (queue.name) @if queue.paused { " " span.badge { "paused" } } }
                            td.num { (number(queue.runnable)) }
                            td { @if let Some(at) = queue.oldest_runnable_at { (time(at, overview.now)) } @else { span.muted { "none" } } }
                            td.num { (queue.workers) }
                        }
                    }
                }))
            }
        }
    }
}
