//! Schedules: what starts again and again, when, what became of it, and what was missed.

use std::collections::BTreeMap;

use dormouse::jiff::civil::Date;
use dormouse::jiff::tz::TimeZone;
use dormouse::jiff::{Timestamp, ToSpan as _};
use dormouse::{CatchUp, Error, Instance, InstanceId, Json, Overlap, Schedule, ScheduleView, Timing};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::Answered;
use super::fields::segment;
use super::layout::Shell;
use super::parts::{self, number, time};
use super::visit::Visit;
use super::{form, json as document};
use crate::cursor::{self, List};
use crate::problem::Problem;

const ROWS: usize = 50;
/// How many next and last runs a schedule's page shows.
const NEXT: usize = 8;
const RUNS: usize = 20;
/// How many weeks the calendar of missed occurrences shows.
const WEEKS: i64 = 5;

pub(super) async fn show(visit: Visit) -> Answered {
    let after =
        visit.query.get("cursor").map(|cursor| cursor::decode(List::Instances, cursor)).transpose()?;
    let (schedules, next) = visit.client.schedules().list(after.map(InstanceId), ROWS).await?;
    let now = visit.client.store().about().await?.now;
    let s = &visit.shell;
    let query = visit.query.with(&[("notice", None)]);
    let next = next.map(|id| cursor::encode(List::Instances, id.0));
    let next =
        next.map(|next| s.at(&format!("/schedules{}", query.with(&[("cursor", Some(&next))]).query())));
    let first = after.map(|_| s.at("/schedules"));
    visit.page("Schedules", &html! {
        h1 { "Schedules" }
        p.muted { "What starts again and again. Each occurrence starts once, whatever crashes." }
        @if s.may_operate() { (create_form(s)) }
        section.card #schedules data-live data-live-every="2" {
            @if schedules.is_empty() {
                (parts::empty("There are no schedules.", &html! {
                    "Declare one in code with " code { "engine.schedule(…)" } ", or create one here."
                }))
            } @else {
                (parts::table("Schedules", &parts::columns(&["Schedule", "When", "Starts", "State", "Next", "Last", "#Started", "#Missed"]), &html! {
                    @for view in &schedules { (row(s, view, now)) }
                }))
            }
        }
        (parts::pager(first, next))
    })
}

fn row(s: &Shell, view: &ScheduleView, now: Timestamp) -> Markup {
    let name = &view.schedule.name;
    html! {
        tr data-schedule=(name) {
            th scope="row" { a href=(s.at(&page_of(name))) { (name) } }
            td { (when(&view.schedule)) }
            td { (parts::machine_link(s, &view.schedule.starts.machine)) }
            td { (state(view)) }
            td { (moment(view.next, now)) }
            td { (moment(view.last, now)) }
            td.num { (number(view.started)) }
            td.num { @if view.missed > 0 { span.bad { (number(view.missed)) } } @else { "0" } }
        }
    }
}

fn page_of(name: &str) -> String {
    format!("/schedules/{}", segment(name))
}

fn when(schedule: &Schedule) -> Markup {
    html! {
        @match &schedule.when {
            Timing::Cron(expression) => { code { (expression) } " " span.muted { (schedule.zone) } },
            Timing::Every(every) => { "every " (parts::span(every.as_millis())) },
        }
    }
}

fn state(view: &ScheduleView) -> Markup {
    html! {
        @if view.status.is_terminal() { (parts::status(view.status)) }
        @else if view.paused { span.badge { "paused" } }
        @else if view.is_waiting { "waits for a run to end" }
        @else { "active" }
        @if view.is_changed() { " " span.badge { "changed" } }
        @if view.error.is_some() { " " span.bad { "error" } }
    }
}

fn moment(at: Option<Timestamp>, now: Timestamp) -> Markup {
    html! { @if let Some(at) = at { (time(at, now)) } @else { span.muted { "none" } } }
}

pub(super) async fn one(visit: Visit) -> Answered {
    let name = visit.path("schedule").to_owned();
    let schedules = visit.client.schedules();
    let view = schedules.get(&name).await?.ok_or_else(|| Error::NoSchedule(name.clone()))?;
    let next = schedules.next(&name, NEXT).await?;
    let runs = schedules.runs(&name, RUNS).await?;
    let now = visit.client.store().about().await?.now;
    let s = &visit.shell;
    visit.page(
        &format!("Schedule {name}"),
        &html! {
            p.crumbs { a href=(s.at("/schedules")) { "Schedules" } }
            h1 { (name) }
            @if s.may_operate() && !view.status.is_terminal() { (actions(s, &view)) }
            div #schedule data-live {
                @if let Some(error) = &view.error { p.bad { (document::short(error, 500)) } }
                div.columns {
                    section.card { h2 { "Settings" } (settings(s, &view)) }
                    section.card { h2 { "Next" } (upcoming(&view, &next, now)) }
                }
                section.card { h2 { "Last runs" } (last_runs(s, &runs, now)) }
                section.card #missed { h2 { "Missed" } (missed(&view, now)) }
            }
        },
    )
}

fn settings(s: &Shell, view: &ScheduleView) -> Markup {
    let schedule = &view.schedule;
    html! {
        dl.facts {
            div { dt { "When" } dd { (when(schedule)) } }
            div {
                dt { "Starts" }
                dd {
                    (parts::machine_link(s, &schedule.starts.machine))
                    @match &schedule.starts.at {
                        Some(at) => { " at " code { (at.step) } },
                        None => { ", in a state that code makes" },
                    }
                }
            }
            div { dt { "Overlap" } dd { (schedule.overlap) } }
            div { dt { "Catch-up" } dd { (catch_up(schedule.catch_up)) } }
            @if !schedule.jitter.is_zero() { div { dt { "Jitter" } dd { "up to " (parts::span(schedule.jitter.as_millis())) } } }
            @if let Some(from) = schedule.from { div { dt { "From" } dd { (parts::absolute(from)) } } }
            @if let Some(until) = schedule.until { div { dt { "Until" } dd { (parts::absolute(until)) } } }
            @if let Some(left) = view.left { div { dt { "Left" } dd { (number(left)) " runs" } } }
            div { dt { "State" } dd { (state(view)) } }
            div { dt { "Started" } dd { (number(view.started)) } }
            div { dt { "Instance" } dd { a href=(s.at(&format!("/instances/{}", view.id))) { "#" (view.id) } } }
        }
        @if let Some(declared) = view.declared.as_ref().filter(|_| view.is_changed()) {
            p.muted { "Somebody changed it. Code declares: " (when(declared)) ", overlap " (declared.overlap) ", catch-up " (catch_up(declared.catch_up)) "." }
        }
    }
}

fn catch_up(catch_up: CatchUp) -> Markup {
    html! {
        @match catch_up {
            CatchUp::None => "none",
            CatchUp::Last => "the last",
            CatchUp::Within(window) => { "all within " (parts::span(window.as_millis())) },
        }
    }
}

fn upcoming(view: &ScheduleView, next: &[Timestamp], now: Timestamp) -> Markup {
    let zone = TimeZone::get(&view.schedule.zone).unwrap_or(TimeZone::UTC);
    html! {
        @if next.is_empty() { p.muted { "Nothing is to come." } }
        ol.plain {
            @for at in next {
                li { (at.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M:%S %Z")) " " span.muted { (time(*at, now)) } }
            }
        }
    }
}

fn last_runs(s: &Shell, runs: &[Instance], now: Timestamp) -> Markup {
    html! {
        @if runs.is_empty() {
            (parts::empty("Nothing was started yet.", &html! { "Runs appear here when they start." }))
        } @else {
            (parts::table("Last runs", &parts::columns(&["Run", "Status", "Started", "Ended"]), &html! {
                @for run in runs {
                    tr data-run=(run.id.0) {
                        th scope="row" { (parts::link(s, run)) }
                        td { (parts::status(run.status)) }
                        td { (time(run.created_at, now)) }
                        td { (moment(run.ended_at, now)) }
                    }
                }
            }))
        }
    }
}

/// The last weeks, a row for each, with what was missed on each day.
fn missed(view: &ScheduleView, now: Timestamp) -> Markup {
    let day = |at: Timestamp| at.to_zoned(TimeZone::UTC).date();
    let mut by_day = BTreeMap::<Date, u64>::new();
    for missed in &view.recently_missed {
        *by_day.entry(day(missed.at)).or_default() += missed.count;
    }
    let today = day(now);
    let monday = today.saturating_sub(i64::from(today.weekday().to_monday_zero_offset()).days());
    let first = monday.saturating_sub((7 * (WEEKS - 1)).days());
    html! {
        @if view.missed == 0 { p.muted { "Nothing was missed." } }
        @else {
            p.muted { (number(view.missed)) " in all. Days are in UTC; the last 50 entries are kept." }
            (parts::table("Missed in the last weeks", &parts::columns(&["Week of", "#Mon", "#Tue", "#Wed", "#Thu", "#Fri", "#Sat", "#Sun"]), &html! {
                @for week in 0..WEEKS {
                    @let begin = first.saturating_add((7 * week).days());
                    tr {
                        th scope="row" { (begin) }
                        @for weekday in 0..7_i64 {
                            @let date = begin.saturating_add(weekday.days());
                            td.num data-day=(date) {
                                @if date > today { "" }
                                @else if let Some(count) = by_day.get(&date) { span.bad { (number(*count)) } }
                                @else { span.muted { "·" } }
                            }
                        }
                    }
                }
            }))
            ul.plain {
                @for missed in view.recently_missed.iter().rev().take(ROWS) {
                    li {
                        (parts::absolute(missed.at)) ": " (missed.why)
                        @if missed.count > 1 { " (" (number(missed.count)) " up to then)" }
                    }
                }
            }
        }
    }
}

fn actions(s: &Shell, view: &ScheduleView) -> Markup {
    let here = page_of(&view.schedule.name);
    let act =
        |verb: &str, class: &str, word: &str| parts::button(s, &format!("{here}/{verb}"), class, word, None);
    html! {
        div #actions.actions role="group" aria-label="Actions" {
            (act("run", "primary", "Run now"))
            @if view.paused { (act("resume", "", "Resume")) } @else { (act("pause", "", "Pause")) }
            details #backfill {
                summary { "Backfill…" }
                form.panel method="post" action=(s.at(&format!("{here}/backfill"))) {
                    (s.token())
                    p { "Starts every occurrence of a past range that was not started before." }
                    label for="backfill-from" { "From" }
                    input #backfill-from name="from" placeholder="2030-01-01T00:00:00Z" required spellcheck="false";
                    label for="backfill-to" { "Up to and with" }
                    input #backfill-to name="to" placeholder="2030-01-02T00:00:00Z" required spellcheck="false";
                    button.primary type="submit" { "Backfill" }
                }
            }
            details #change {
                summary { "Change…" }
                form.panel method="post" action=(s.at(&format!("{here}/change"))) {
                    (s.token())
                    p { "It counts from now on. What is left empty stays as it is." }
                    (timing_fields("change", Some(&view.schedule)))
                    button.primary type="submit" { "Change" }
                }
            }
            @if view.is_changed() { (act("reset", "", "Reset to the code")) }
            details #delete {
                summary { "Delete…" }
                form.panel method="post" action=(s.at(&format!("{here}/delete"))) {
                    (s.token())
                    p { "Nothing more starts. Its runs go on." }
                    button.danger type="submit" { "Delete this schedule" }
                }
            }
        }
    }
}

fn create_form(s: &Shell) -> Markup {
    html! {
        div.actions role="group" aria-label="Actions" {
            details #create {
                summary.primary { "Create…" }
                form.panel method="post" action=(s.at("/schedules")) {
                    (s.token())
                    label for="create-name" { "Name" }
                    input #create-name name="name" maxlength="200" required spellcheck="false";
                    (timing_fields("create", None))
                    label for="create-machine" { "Machine" }
                    input #create-machine name="machine" required spellcheck="false";
                    label for="create-step" { "Step " span.muted { "(not for jobs and flows)" } }
                    input #create-step name="step" spellcheck="false";
                    label for="create-state" { "State, as JSON " span.muted { "({{scheduled_at}} in a text stands for the moment)" } }
                    textarea #create-state name="state" rows="6" spellcheck="false" {}
                    button.primary type="submit" { "Create" }
                }
            }
        }
    }
}

/// The fields of when it happens and of its policies.
fn timing_fields(of: &str, schedule: Option<&Schedule>) -> Markup {
    let cron = schedule.and_then(|schedule| match &schedule.when {
        Timing::Cron(expression) => Some(expression.as_str()),
        Timing::Every(_) => None,
    });
    let overlap = schedule.map_or(Overlap::Skip, |schedule| schedule.overlap);
    html! {
        label for={(of) "-cron"} { "Cron expression" }
        input id={(of) "-cron"} name="cron" value=[cron] placeholder="0 3 * * *" spellcheck="false";
        label for={(of) "-every"} { "or every " span.muted { "(such as 5m)" } }
        input id={(of) "-every"} name="every" spellcheck="false";
        label for={(of) "-zone"} { "Time zone" }
        input id={(of) "-zone"} name="zone" value=(schedule.map_or("UTC", |schedule| &schedule.zone)) spellcheck="false";
        label for={(of) "-overlap"} { "While an earlier run lives" }
        select.overlap id={(of) "-overlap"} name="overlap" {
            @for policy in Overlap::ALL { option value=(policy) selected[policy == overlap] { (policy) } }
        }
        label for={(of) "-catch-up"} { "After downtime " span.muted { "(none, last, or an age such as 1h)" } }
        input id={(of) "-catch-up"} name="catch_up" placeholder="last" spellcheck="false";
    }
}

/// The fields of a submitted form that are not empty. Where both are filled, a period wins over the expression that the
/// form came with.
fn submitted(visit: &Visit, names: &[&str]) -> Value {
    let mut body = serde_json::Map::new();
    for name in names {
        if let Some(text) = visit.form.text(name) {
            body.insert((*name).to_owned(), text.into());
        }
    }
    if body.contains_key("every") {
        body.remove("cron");
    }
    body.into()
}

pub(super) async fn create(visit: Visit) -> Answered {
    let body =
        submitted(&visit, &["name", "cron", "every", "zone", "overlap", "catch_up", "machine", "step"]);
    let state: Option<Json> = match visit.form.get("state") {
        Some(_) => form::read(&visit.form, None, "state")?,
        None => None,
    };
    let body = crate::cli::with_document(body, "state", state);
    visit.act_on("/v1/schedules", &[], &body).await?;
    let name = visit.form.text("name").unwrap_or_default();
    visit.go(&format!("{}?notice=scheduled", page_of(&name)))
}

pub(super) async fn change(visit: Visit) -> Answered {
    let body = submitted(&visit, &["cron", "every", "zone", "overlap", "catch_up"]);
    act(&visit, "/v1/schedules/{schedule}/change", &body, "changed").await
}

pub(super) async fn backfill(visit: Visit) -> Answered {
    let body = submitted(&visit, &["from", "to"]);
    act(&visit, "/v1/schedules/{schedule}/backfill", &body, "backfilled").await
}

pub(super) async fn run(visit: Visit) -> Answered {
    act(&visit, "/v1/schedules/{schedule}/run", &json!({}), "ran").await
}

pub(super) async fn pause(visit: Visit) -> Answered {
    act(&visit, "/v1/schedules/{schedule}/pause", &json!({}), "held").await
}

pub(super) async fn resume(visit: Visit) -> Answered {
    act(&visit, "/v1/schedules/{schedule}/resume", &json!({}), "resumed").await
}

pub(super) async fn reset(visit: Visit) -> Answered {
    act(&visit, "/v1/schedules/{schedule}/reset", &json!({}), "changed").await
}

pub(super) async fn delete(visit: Visit) -> Answered {
    let route = "/v1/schedules/{schedule}/delete";
    visit.act(route, ("schedule", visit.path("schedule")), &json!({})).await?;
    visit.go("/schedules?notice=deleted")
}

async fn act(visit: &Visit, route: &'static str, body: &Value, notice: &str) -> Answered {
    let name = visit.path("schedule");
    let done: Result<Value, Problem> = visit.act(route, ("schedule", name), body).await;
    done?;
    visit.go(&format!("{}?notice={notice}", page_of(name)))
}
