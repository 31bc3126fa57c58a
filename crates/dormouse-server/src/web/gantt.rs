//! An instance over time: a bar for each time that it ran or waited, and one for each of its children.

use dormouse::jiff::Timestamp;
use dormouse::store::{Bounds, Events, Filter};
use dormouse::{Event, EventKind, Instance, Status};
use maud::{Markup, html};

use super::Answered;
use super::parts::{self, absolute, span};
use super::visit::Visit;
use crate::problem::Problem;

/// The most events and children to draw; the newest.
const EVENTS: usize = 150;
const EVENTS_BYTES_MAX: usize = 1024 * 1024;
const CHILDREN: usize = 60;
/// The width of the drawing, of its labels, and the height of a row.
const WIDTH: f64 = 900.0;
const LABELS: f64 = 220.0;
const ROW: f64 = 22.0;
const TICKS: u32 = 5;

/// One row of the drawing.
struct Row {
    label: String,
    /// The class that gives the bar its colour.
    class: &'static str,
    told: String,
    from: Timestamp,
    to: Timestamp,
    link: Option<String>,
}

pub(super) async fn show(visit: Visit) -> Answered {
    let instance = visit.instance().await?;
    let now = visit.client.store().about().await?.now;
    let (rows, is_cut) = rows(&visit, &instance, now).await?;
    let s = &visit.shell;
    visit.page(&format!("Timeline of {}", parts::name(&instance)), &html! {
        p.crumbs { a href=(s.at("/instances")) { "Instances" } " / " (parts::link(s, &instance)) }
        h1 { "Timeline" }
        p.muted {
            "From " (absolute(instance.created_at)) ", for " (span(end(&instance, now).duration_since(instance.created_at).as_millis())) "."
            @if is_cut { " Only the newest part of its history, and the first of its children, are drawn." }
        }
        article #instance data-instance=(instance.id) data-status=(instance.status.as_str()) {
            section.card #gantt data-live {
                @if rows.is_empty() {
                    (parts::empty("Nothing is recorded.", &html! { "Its machine or engine keeps no history, or the history was removed." }))
                } @else {
                    div.drawing tabindex="0" role="region" aria-label="Timeline" { (drawing(&rows)) }
                    (legend())
                }
            }
        }
    })
}

fn end(instance: &Instance, now: Timestamp) -> Timestamp {
    instance.ended_at.unwrap_or(now).max(instance.created_at)
}

/// What happened to it in order, then its children.
async fn rows(visit: &Visit, instance: &Instance, now: Timestamp) -> Result<(Vec<Row>, bool), Problem> {
    let bounds = Bounds { rows_max: EVENTS, bytes_max: EVENTS_BYTES_MAX };
    let read = visit.client.store().history(instance.id, Events::Before(u64::MAX), bounds).await?;
    let events: Vec<Event> = read.items.into_iter().rev().collect();
    let mut rows = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let next = events.get(index + 1);
        // What ran is the step before the event; its own step is the next one.
        let before = index.checked_sub(1).map_or(&event.step, |before| &events[before].step);
        rows.extend(ran(event, before));
        let to = next.map_or_else(|| end(instance, now), |next| run_start(next).unwrap_or(next.at));
        rows.extend(waited(event, to, next.is_none().then_some(instance.status)));
    }
    let of = Filter { parent: Some(instance.id), limit: CHILDREN, heads_only: true, ..Filter::default() };
    let children = visit.client.list(of).await?;
    let child = |child: &Instance| Row {
        label: format!("↳ {}", parts::name(child)),
        class: of_status(child.status),
        told: format!(
            "child {} of {}: {}",
            parts::name(child),
            child.machine,
            parts::words(child.status.as_str())
        ),
        from: child.created_at,
        to: end(child, now),
        link: Some(visit.shell.at(&format!("/instances/{}", child.id))),
    };
    rows.extend(children.instances.iter().rev().map(child));
    Ok((rows, read.more || children.next.is_some()))
}

fn of_status(status: Status) -> &'static str {
    match status {
        Status::Done => "done",
        Status::Failed => "failed",
        Status::Cancelled => "cancelled",
        _ => "live",
    }
}

fn run_start(event: &Event) -> Option<Timestamp> {
    event.run.as_ref().map(|run| run.started_at)
}

/// The run of a step that led to an event.
fn ran(event: &Event, step: &str) -> Option<Row> {
    let run = event.run.as_ref()?;
    let is_retry = event.kind == EventKind::StepRetried;
    let took = std::time::Duration::from_micros(run.took_us);
    let what = if is_retry { "failed, and is tried again" } else { "ran" };
    Some(Row {
        label: step.to_owned(),
        class: if is_retry { "retried" } else { "ran" },
        told: format!("{}: {what}, {}", event.kind.as_str(), span(took.as_millis() as i128)),
        from: run.started_at,
        to: run.started_at.checked_add(took).unwrap_or(run.started_at),
        link: None,
    })
}

/// The time after an event in which nothing ran.
fn waited(event: &Event, to: Timestamp, now: Option<Status>) -> Option<Row> {
    let what = match (event.kind, now) {
        (EventKind::Done | EventKind::Failed | EventKind::Cancelled, _) => return None,
        (_, Some(status)) if status.is_terminal() => return None,
        (EventKind::SignalWaiting, _) => "waited for a signal",
        (EventKind::ChildrenSpawned, _) => "waited for its children",
        (EventKind::UnitOpened | EventKind::InteractionDispatched, _) => "waited for answers",
        (EventKind::StepRetried, _) => "waited before another try",
        (_, Some(Status::Executing)) => "runs",
        (_, Some(Status::Scheduled)) => "sleeps",
        _ => "waited for its turn",
    };
    let lasted = to.duration_since(event.at).as_millis();
    (lasted > 0).then(|| Row {
        label: event.step.clone(),
        class: if what == "waited for its turn" { "queued" } else { "waited" },
        told: format!("{what}, {}", span(lasted)),
        from: event.at,
        to,
        link: None,
    })
}

fn drawing(rows: &[Row]) -> Markup {
    let first = rows.iter().map(|row| row.from).min().unwrap_or_default();
    let last = rows.iter().map(|row| row.to).max().unwrap_or_default();
    let total = last.duration_since(first).as_millis().max(1) as f64;
    let x = |at: Timestamp| {
        LABELS + at.duration_since(first).as_millis() as f64 / total * (WIDTH - LABELS - 10.0)
    };
    let height = (rows.len() as f64 + 1.5) * ROW;
    html! {
        svg.gantt viewBox=(format!("0 0 {WIDTH} {height}")) width=(WIDTH) height=(height) role="img"
            aria-label=(format!("{} bars over {}", rows.len(), span(total as i128))) {
            @for tick in 0..=TICKS {
                @let share = f64::from(tick) / f64::from(TICKS);
                @let place = LABELS + share * (WIDTH - LABELS - 10.0);
                line.tick x1=(place) x2=(place) y1=(ROW) y2=(height) {}
                text.when x=(place) y="14" text-anchor=(if tick == TICKS { "end" } else { "middle" }) { "+" (span((share * total) as i128)) }
            }
            @for (index, row) in rows.iter().enumerate() {
                @let y = (index as f64 + 1.2) * ROW;
                g class={"bar " (row.class)} {
                    title { (row.label) ": " (row.told) }
                    @if let Some(link) = &row.link { a href=(link) { (label(row, y)) } } @else { (label(row, y)) }
                    rect x=(format!("{:.1}", x(row.from))) y=(format!("{:.1}", y)) rx="3" height=(ROW - 6.0)
                        width=(format!("{:.1}", (x(row.to) - x(row.from)).max(2.0))) {}
                }
            }
        }
    }
}

fn label(row: &Row, y: f64) -> Markup {
    html! { text x=(LABELS - 8.0) y=(y + 12.0) text-anchor="end" { (super::json::short(&row.label, 30)) } }
}

fn legend() -> Markup {
    let words = [
        ("ran", "a step ran"),
        ("retried", "a try failed"),
        ("waited", "waited for something"),
        ("queued", "waited for its turn"),
        ("live", "a child"),
    ];
    html! { ul.legend { @for (class, word) in words { li { span class={"swatch " (class)} {} (word) } } } }
}
