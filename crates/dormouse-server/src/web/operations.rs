//! Queues, workers, and the audit log.

use dormouse::jiff::Timestamp;
use dormouse::store::{AuditFilter, WorkerView};
use dormouse::{ShareWeight, WEIGHT_MAX};
use maud::{Markup, html};
use serde_json::json;

use super::Answered;
use super::fields::{query, segment};
use super::json::short;
use super::layout::Shell;
use super::pace::{self, Of};
use super::parts::{self, number, time};
use super::pulse::Pulse;
use super::visit::Visit;
use crate::api::Overview;
use crate::cursor::{self, List};

const ROWS: usize = 50;

pub(super) async fn queues(visit: Visit) -> Answered {
    let overview = Overview::of(&visit.client).await?;
    let (s, queues) = (&visit.shell, overview.queues());
    let shares = visit.client.shares().await?;
    let names = queues.iter().map(|queue| queue.name.as_str());
    let paces = Pulse::paces(&visit.app, visit.client.namespace(), overview.now, Of::Queue, names).await;
    visit.page("Queues", &html! {
        h1 { "Queues" }
        p.muted { "A paused queue accepts new work and signals, but no worker claims from it until it is resumed." }
        section.card #queues data-live {
            @if queues.is_empty() {
                (parts::empty("No queue is served, and none has work.", &html! {
                    "A queue appears here as soon as a worker serves it, an instance waits in it, or it is paused."
                }))
            } @else {
                (parts::table("Queues", &html! {
                    (parts::columns(&["Queue", "State", "#Runnable", "Oldest runnable", "#Workers", "#Claims /s", "#p50", "#p95", "#p99"]))
                    @if s.may_operate() { th scope="col" { "Action" } }
                }, &html! {
                    @for (queue, pace) in queues.iter().zip(&paces) {
                        @let (verb, word) = if queue.paused { ("resume", "Resume") } else { ("pause", "Pause") };
                        tr #{"queue-" (queue.name)} data-queue=(queue.name) data-paused=(queue.paused) {
                            th scope="row" { a href=(s.at(&format!("/instances{}", query("queue", &queue.name)))) { (queue.name) } }
                            td {
                                @if queue.paused { span.badge { "paused" } }
                                @else if queue.workers == 0 { span.bad { "no worker serves it" } }
                                @else { "running" }
                            }
                            td.num { (number(queue.runnable)) }
                            td { @if let Some(at) = queue.oldest_runnable_at { (time(at, overview.now)) } @else { span.muted { "none" } } }
                            td.num { (queue.workers) }
                            (pace::cells(pace))
                            @if s.may_operate() {
                                @let action = format!("/queues/{}/{verb}", segment(&queue.name));
                                td { (parts::button(s, &action, "", word, Some(&format!("{word} queue {}", queue.name)))) }
                            }
                        }
                    }
                }))
                p.muted.small { "Claims by all workers in the last five minutes, and how long instances had waited since they could run." }
            }
        }
        (weights(s, &shares))
    })
}

/// The shares that weigh more than others, and a form to change one.
fn weights(s: &Shell, shares: &[ShareWeight]) -> Markup {
    html! {
        h2 { "Shares" }
        p.muted {
            "Work of one queue and priority is served by turns of its shares. In each of its turns a share is served as \
             many instances as it weighs: one, unless it is listed here."
        }
        section.card #shares {
            @if !shares.is_empty() {
                (parts::table("Shares", &parts::columns(&["Share", "#Weight"]), &html! {
                    @for weighed in shares {
                        tr data-share=(weighed.share) {
                            th scope="row" { (weighed.share) }
                            td.num { (weighed.weight) }
                        }
                    }
                }))
            }
            @if s.may_administer() {
                form #share-weigh method="post" action=(s.at("/shares")) {
                    (s.token())
                    label for="share-name" { "Share" }
                    input #share-name name="share" maxlength="255" required spellcheck="false";
                    label for="share-weight" { "Weight" }
                    input #share-weight name="weight" type="number" min="1" max=(WEIGHT_MAX) value="1" required;
                    button type="submit" { "Set" }
                }
            }
        }
    }
}

pub(super) async fn weigh_share(visit: Visit) -> Answered {
    let share = visit.form.get("share").unwrap_or_default();
    let weight = visit.form.get("weight").and_then(|weight| weight.parse::<u32>().ok());
    visit.act("/v1/shares/{share}/weigh", ("share", share), &json!({ "weight": weight })).await?;
    visit.go("/queues?notice=weighed")
}

pub(super) async fn pause_queue(visit: Visit) -> Answered {
    visit.act("/v1/queues/{queue}/pause", ("queue", visit.path("queue")), &json!({})).await?;
    visit.go("/queues?notice=braked")
}

pub(super) async fn resume_queue(visit: Visit) -> Answered {
    visit.act("/v1/queues/{queue}/resume", ("queue", visit.path("queue")), &json!({})).await?;
    visit.go("/queues?notice=unbraked")
}

pub(super) async fn workers(visit: Visit) -> Answered {
    let overview = Overview::of(&visit.client).await?;
    let serves = |worker: &&WorkerView| worker.namespaces.contains(visit.client.namespace());
    let workers: Vec<&WorkerView> = overview.stats.workers.iter().filter(serves).collect();
    visit.page("Workers", &html! {
        h1 { "Workers" }
        p.muted { "Running engines. When a worker's lease ends, another worker takes over its instances and runs their steps again." }
        section.card #workers data-live {
            @if workers.is_empty() {
                (parts::empty("No worker is registered.", &html! {
                    "Nothing moves without one: run " code { "serve" } " or " code { "worker" } " of the program that has the machines."
                }))
            } @else {
                (parts::table("Workers", &parts::columns(&["Worker", "State", "Process", "Queues", "Machines", "#Holds", "Since"]),
                    &html! { @for worker in workers { (worker_row(&visit.shell, worker, overview.now)) } }))
            }
        }
    })
}

fn worker_row(s: &Shell, worker: &WorkerView, now: Timestamp) -> Markup {
    let is_live = worker.lease_until >= now;
    html! {
        tr #{"worker-" (worker.id.0)} data-worker=(worker.id.0) {
            th scope="row" { (worker.name) span.muted.small { " #" (worker.id.0) } }
            td {
                (parts::tagged(if is_live { "live" } else { "lost" }))
                span.muted.small { " lease " (if is_live { "ends " } else { "ended " }) (time(worker.lease_until, now)) }
            }
            td { (worker.process.host) ", process " (worker.process.pid) }
            td { (worker.queues.join(", ")) }
            td.wide {
                @for (index, (name, version)) in worker.machines.iter().enumerate() {
                    @if index > 0 { ", " }
                    (parts::machine_link(s, name)) " v" (version)
                }
            }
            td.num { (worker.claims) }
            td { (time(worker.started_at, now)) }
        }
    }
}

pub(super) async fn audit(visit: Visit) -> Answered {
    let before = visit.query.get("cursor").map(|cursor| cursor::decode(List::Audit, cursor)).transpose()?;
    let filter = AuditFilter {
        namespace: Some(visit.caller.namespace.clone()),
        who: visit.query.text("who"),
        what: visit.query.text("what"),
        target: visit.query.text("target"),
        before,
        limit: ROWS + 1,
    };
    let store = &visit.app.store;
    let mut entries = store.audit(filter).await?;
    let now = store.about().await?.now;
    let has_more = entries.len() > ROWS;
    entries.truncate(ROWS);
    let (s, query) = (&visit.shell, &visit.query);
    let next = entries.last().filter(|_| has_more).map(|entry| cursor::encode(List::Audit, entry.id));
    let next = next.map(|next| s.at(&format!("/audit{}", query.with(&[("cursor", Some(&next))]).query())));
    let first = before.map(|_| s.at(&format!("/audit{}", query.with(&[("cursor", None)]).query())));
    let to = |name: &str, value: &str| {
        s.at(&format!("/audit{}", query.with(&[("cursor", None), (name, Some(value))]).query()))
    };
    visit.page("Audit", &html! {
        h1 { "Audit" }
        p.muted { "Every change made through the API, the command line or these pages: by whom, to what, and how it ended." }
        form.filters method="get" action=(s.at("/audit")) role="search" aria-label="Filter the audit log" {
            (parts::filter(query, "who", "Who", "anyone"))
            (parts::filter(query, "what", "What", "instance.cancel"))
            (parts::filter(query, "target", "To what", "number or name"))
            div.buttons { button.primary type="submit" { "Filter" } a href=(s.at("/audit")) { "Clear" } }
        }
        section.card #audit data-live {
            @if entries.is_empty() {
                @let is_filtered = ["who", "what", "target"].iter().any(|name| query.get(name).is_some());
                (parts::empty(if is_filtered { "No entry matches." } else { "Nothing was changed yet." }, &html! {
                    "Reading leaves no entry. Entries are kept for ninety days unless the server is configured otherwise."
                }))
            } @else {
                (parts::table("Audit log, newest first", &parts::columns(&["When", "Who", "What", "To what", "Result"]), &html! {
                    @for entry in &entries {
                        tr #{"entry-" (entry.id)} data-what=(entry.entry.what) {
                            td { (time(entry.at, now)) }
                            td { a.plain href=(to("who", &entry.entry.who)) { (short(&entry.entry.who, 80)) } }
                            td { a.plain href=(to("what", &entry.entry.what)) { (entry.entry.what) } }
                            td.wide { @if let Some(target) = &entry.entry.target { (target_link(s, &entry.entry.what, target)) } }
                            td { @if entry.entry.result == "ok" { "ok" } @else { span.bad { (entry.entry.result) } } }
                        }
                    }
                }))
            }
        }
        (parts::pager(first, next))
    })
}

fn target_link(s: &Shell, what: &str, target: &str) -> Markup {
    let shown = short(target, 80);
    let page = match what.split('.').next() {
        Some("instance") => format!("/instances/{}", segment(target)),
        Some("interaction") => format!("/inbox/{}", segment(target)),
        _ => return html! { (shown) },
    };
    html! { a href=(s.at(&page)) { (shown) } }
}
