//! The list of instances. Its filters are in the address, and the selected instances can be acted on together.

use dormouse::jiff::Timestamp;
use dormouse::store::{Count, Filter, Page};
use dormouse::{Instance, InstanceId, Status};
use maud::{Markup, html};

use super::Answered;
use super::fields::Fields;
use super::json::short;
use super::layout::Shell;
use super::parts::{self, number, time};
use super::visit::Visit;
use super::{bulk, commands};
use crate::api::{Overview, Verb, conditions, statuses, told_of};
use crate::cursor;
use crate::problem::Problem;

const ROWS: usize = 50;
/// How many machines the filter offers; others can be typed.
const OFFERED: usize = 200;
/// The query parameters that choose instances.
pub(super) const FILTERS: [&str; 19] = [
    "machine",
    "version",
    "status",
    "step",
    "queue",
    "key",
    "awaiting",
    "parent",
    "roots",
    "tag",
    "error",
    "where",
    "created_from",
    "created_before",
    "changed_from",
    "changed_before",
    "ended_from",
    "ended_before",
    "order",
];
/// Those of them that are shown only when they are asked for.
const RARE: [(&str, &str, &str); 9] = [
    ("version", "Version", "any"),
    ("queue", "Queue", "any"),
    ("awaiting", "Waits for signal", "any"),
    ("parent", "Child of", "number"),
    ("created_from", "Created from", "2030-01-31T12:00Z"),
    ("created_before", "Created before", "2030-01-31T12:00Z"),
    ("changed_from", "Changed from", "2030-01-31T12:00Z"),
    ("ended_from", "Ended from", "2030-01-31T12:00Z"),
    ("ended_before", "Ended before", "2030-01-31T12:00Z"),
];

pub(super) async fn show(visit: Visit) -> Answered {
    let overview = Overview::of(&visit.client).await?;
    let (after, after_at) = cursor::after(visit.query.get("cursor"))?;
    let filter = Filter { after, after_at, limit: ROWS, heads_only: true, ..filter(&visit.query)? };
    let machine = filter.machine.clone();
    // If the stored counts have none, skip the search of the table.
    let is_there = |count: &Count| {
        machine.as_ref().is_none_or(|machine| *machine == count.machine)
            && filter.status.is_none_or(|status| status == count.status)
            && (filter.statuses.is_empty() || filter.statuses.contains(&count.status))
    };
    let page = match overview.more || overview.counts.iter().any(is_there) {
        true => visit.client.list(filter).await?,
        false => Page::default(),
    };
    let (s, query) = (&visit.shell, visit.query.with(&[("notice", None)]));
    let next = cursor::next(&page);
    let next =
        next.map(|next| s.at(&format!("/instances{}", query.with(&[("cursor", Some(&next))]).query())));
    let first = after.map(|_| s.at(&format!("/instances{}", query.with(&[("cursor", None)]).query())));
    let list = html! {
        section.card #instances data-live {
            @if page.instances.is_empty() {
                (nothing(s, &query))
            } @else {
                (rows(s, &page.instances, overview.now, s.may_operate()))
            }
        }
    };
    visit.page(
        "Instances",
        &html! {
            h1 { "Instances" }
            @if s.may_operate() { p { a.button href=(s.at("/start")) { "Start an instance…" } } }
            (tabs(s, &query, &overview, machine.as_deref()))
            (filters(s, &query, &overview))
            @if s.may_operate() {
                form #chosen method="get" action=(s.at("/instances/bulk")) {
                    (kept(&query))
                    (bulk_bar())
                    (list)
                }
            } @else {
                (list)
            }
            @if let Some(told) = told_of(page.looked, page.next.is_some()) { p.muted #looked { (told) } }
            (parts::pager(first, next))
            (commands::of_list(s, &query))
        },
    )
}

/// The filter that the address describes.
pub(super) fn filter(query: &Fields) -> Result<Filter, Problem> {
    let statuses = statuses(query.all("status"))?;
    let (status, statuses) = match &statuses[..] {
        [status] => (Some(*status), Vec::new()),
        _ => (None, statuses),
    };
    let version = query.get("version").map(|text| {
        text.parse().map_err(|_| Problem::invalid(format!("{text:?} is not the number of a version")))
    });
    let parent = query.get("parent").map(|text| {
        text.parse().map_err(|_| Problem::invalid(format!("{text:?} is not the id of an instance")))
    });
    Ok(Filter {
        machine: query.text("machine"),
        version: version.transpose()?,
        status,
        statuses,
        step: query.text("step"),
        error: query.text("error"),
        conditions: conditions(query.all("where"))?,
        created_from: moment(query, "created_from")?,
        created_before: moment(query, "created_before")?,
        changed_from: moment(query, "changed_from")?,
        changed_before: moment(query, "changed_before")?,
        ended_from: moment(query, "ended_from")?,
        ended_before: moment(query, "ended_before")?,
        oldest_first: query.get("order") == Some("oldest"),
        queue: query.text("queue"),
        key_prefix: query.text("key"),
        awaiting: query.text("awaiting"),
        parent: parent.transpose()?.map(InstanceId),
        roots: query.get("roots") == Some("true"),
        tags: tags(query),
        ..Filter::default()
    })
}

/// A moment in the address: as people write it, a day is its beginning, and without a zone it is UTC.
fn moment(query: &Fields, name: &str) -> Result<Option<Timestamp>, Problem> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let read = text.parse::<Timestamp>().or_else(|error| {
        let civil = text.trim_end_matches('Z').parse::<dormouse::jiff::civil::DateTime>();
        civil.and_then(|civil| dormouse::jiff::tz::TimeZone::UTC.to_timestamp(civil)).map_err(|_| error)
    });
    let told = || format!("`{name}` is not a moment such as 2030-01-31T12:00Z: {text:?}");
    read.map(Some).map_err(|_| Problem::invalid(told()))
}

/// The tags in the address.
fn tags(query: &Fields) -> Vec<String> {
    query.all("tag").map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned).collect()
}

/// The filter as hidden fields of a form.
pub(super) fn kept(query: &Fields) -> Markup {
    html! {
        @for name in FILTERS {
            @for value in query.all(name) { input type="hidden" name=(name) value=(value); }
        }
    }
}

/// The statuses with their stored counts, each a link to its filter.
fn tabs(s: &Shell, query: &Fields, overview: &Overview, machine: Option<&str>) -> Markup {
    let counts =
        overview.counts.iter().filter(|count| machine.is_none_or(|machine| count.machine == machine));
    let count = |status: Option<Status>| -> u64 {
        if machine.is_none() {
            return overview.count(|is| status.is_none_or(|status| status == is));
        }
        let of = counts.clone().filter(|count| status.is_none_or(|status| count.status == status));
        of.map(|count| count.count).sum()
    };
    let chosen: Vec<&str> = query.all("status").flat_map(|words| words.split(',')).collect();
    let is_chosen = |word: Option<&str>| word.map_or(chosen.is_empty(), |word| chosen.contains(&word));
    let tab = |status: Option<Status>| {
        let word = status.map(Status::as_str);
        let to = query.with(&[("status", word), ("cursor", None)]).query();
        html! {
            li { a href=(s.at(&format!("/instances{to}"))) aria-current=[is_chosen(word).then_some("true")] data-status=[word] {
                (word.map_or_else(|| "all".to_owned(), parts::words)) " " span.count { (number(count(status))) }
            } }
        }
    };
    html! {
        nav #statuses.tabs data-live aria-label="Statuses" {
            ul { (tab(None)) @for status in Status::ALL { (tab(Some(status))) } }
        }
    }
}

fn filters(s: &Shell, query: &Fields, overview: &Overview) -> Markup {
    let mut machines: Vec<&str> = overview.counts.iter().map(|count| count.machine.as_str()).collect();
    machines.dedup();
    machines.truncate(OFFERED);
    html! {
        form.filters method="get" action=(s.at("/instances")) role="search" aria-label="Filter instances" {
            @for status in query.all("status") { input type="hidden" name="status" value=(status); }
            @if let Some(order) = query.get("order") { input type="hidden" name="order" value=(order); }
            div {
                label for="filter-machine" { "Machine" }
                input #filter-machine name="machine" value=[query.get("machine")] list="machines" placeholder="any" spellcheck="false";
                datalist #machines { @for machine in machines { option value=(machine) {} } }
            }
            (parts::filter(query, "key", "Key starts with", "order:"))
            (parts::filter(query, "step", "Step", "any"))
            (condition_filter(s, query))
            (parts::filter(query, "error", "Error contains", "any"))
            (tag_filter(s, query))
            (rare_filters(query))
            div.checks { label.check {
                input #filter-roots type="checkbox" name="roots" value="true" checked[query.get("roots") == Some("true")];
                " roots only"
            } }
            div.buttons {
                button.primary type="submit" { "Filter" }
                a href=(s.at("/instances")) { "Clear" }
                (order_link(s, query))
            }
        }
    }
}

/// The filters that are seldom used; open where one of them is.
fn rare_filters(query: &Fields) -> Markup {
    let is_used = RARE.iter().any(|(name, ..)| query.get(name).is_some());
    html! {
        details.rare #rare-filters open[is_used] {
            summary { "More filters" }
            div.filters { @for (name, label, hint) in RARE { (parts::filter(query, name, label, hint)) } }
        }
    }
}

/// The link that turns the order of the list.
fn order_link(s: &Shell, query: &Fields) -> Markup {
    let (order, word) = match query.get("order") {
        Some("oldest") => (None, "Newest first"),
        _ => (Some("oldest"), "Oldest first"),
    };
    let to = query.with(&[("order", order), ("cursor", None), ("notice", None)]).query();
    html! { a #order href=(s.at(&format!("/instances{to}"))) { (word) } }
}

/// The conditions on the state, each with a link that removes it, and a field to add one.
fn condition_filter(s: &Shell, query: &Fields) -> Markup {
    let chosen: Vec<&str> = query.all("where").map(str::trim).filter(|text| !text.is_empty()).collect();
    let without = |left_out: &str| {
        let base = query.with(&[("where", None), ("cursor", None)]);
        let rest = chosen.iter().filter(|condition| **condition != left_out);
        s.at(&format!("/instances{}", rest.fold(base, |query, text| query.and("where", text)).query()))
    };
    html! {
        div {
            label for="filter-where" { "State" }
            @for condition in &chosen {
                input type="hidden" name="where" value=(condition);
                a.tag href=(without(condition)) aria-label={"Leave out the condition " (condition)} { (condition) " ×" }
            }
            input #filter-where name="where" placeholder=(if chosen.is_empty() { "total > 1000" } else { "and another" }) spellcheck="false";
        }
    }
}

/// The tags of the filter, each with a link that removes it, and a field to add one.
fn tag_filter(s: &Shell, query: &Fields) -> Markup {
    let chosen = tags(query);
    let without = |left_out: &str| {
        let rest = chosen.iter().filter(|tag| *tag != left_out);
        let base = query.with(&[("tag", None), ("cursor", None)]);
        s.at(&format!("/instances{}", rest.fold(base, |query, tag| query.and("tag", tag)).query()))
    };
    html! {
        div {
            label for="filter-tag" { "Tag" }
            @for tag in &chosen {
                input type="hidden" name="tag" value=(tag);
                a.tag href=(without(tag)) aria-label={"Leave out the tag " (tag)} { (tag) " ×" }
            }
            input #filter-tag name="tag" placeholder=(if chosen.is_empty() { "any" } else { "and another" }) spellcheck="false";
        }
    }
}

fn bulk_bar() -> Markup {
    html! {
        fieldset.bulk {
            legend { "Act on many" }
            label for="which" { "On" }
            select.choice #which name="which" {
                option value="chosen" { "those selected below" }
                option value="all" { "all that match the filter" }
            }
            @for verb in Verb::ALL {
                button type="submit" name="verb" value=(verb.word()) { (bulk::button(verb)) "…" }
            }
            span.muted #chosen-count aria-live="polite" {}
        }
    }
}

fn nothing(s: &Shell, query: &Fields) -> Markup {
    if FILTERS.iter().any(|name| query.get(name).is_some()) {
        let all = html! { "Loosen the filter, or see " a href=(s.at("/instances")) { "all instances" } "." };
        return parts::empty("No instance matches.", &all);
    }
    let hint = html! {
        "Start one from your program, with " code { "start" } " on the command line, or by "
        code { "POST /v1/instances" } "."
    };
    parts::empty("There are no instances yet.", &hint)
}

/// Instances as a table. It has a column for what they wait for, or for how they ended, where one of them has such.
pub(super) fn rows(s: &Shell, instances: &[Instance], now: Timestamp, can_choose: bool) -> Markup {
    let some_wait = instances.iter().any(|instance| !instance.status.is_terminal());
    let some_ended = instances.iter().any(|instance| ended_with(instance).is_some());
    let head = html! {
        @if can_choose { th.choose scope="col" { input #choose-all type="checkbox" aria-label="Choose all on this page" hidden; } }
        th scope="col" { "Instance" } th scope="col" { "Machine" } th scope="col" { "Status" } th scope="col" { "Step" }
        @if some_wait { th scope="col" { "Waits for" } }
        @if some_ended { th scope="col" { "Ended with" } }
        th scope="col" { "Queue" } th scope="col" { "Changed" }
    };
    parts::table(
        "Instances",
        &head,
        &html! {
            @for instance in instances {
                tr #{"instance-" (instance.id)} data-instance=(instance.id) data-status=(instance.status.as_str()) {
                    @if can_choose {
                        td.choose { input type="checkbox" name="id" value=(instance.id) aria-label={"Choose " (parts::name(instance))}; }
                    }
                    th scope="row" {
                        (parts::link(s, instance)) @if instance.key.is_some() { span.muted.small { " #" (instance.id) } }
                        @if !instance.tags.is_empty() { " " (parts::tags(s, &instance.tags)) }
                    }
                    td { (parts::machine_link(s, &instance.machine)) span.muted.small { " v" (instance.version) } }
                    td { (parts::status(instance.status)) @if instance.paused { " " span.badge { "paused" } } }
                    td { (parts::named(&instance.step)) @if instance.attempt > 0 { span.muted.small { " try " (instance.attempt + 1) } } }
                    @if some_wait { td.wide { (waits_for(instance, now)) } }
                    @if some_ended {
                        td.wide { @if let Some(why) = ended_with(instance) { span.bad[instance.status == Status::Failed] { (short(why, 80)) } } }
                    }
                    td { (parts::named(&instance.queue)) }
                    td { (time(instance.changed_at, now)) }
                }
            }
        },
    )
}

/// The error or the reason that an instance ended with.
fn ended_with(instance: &Instance) -> Option<&str> {
    match instance.status {
        Status::Failed => instance.last_error.as_deref(),
        Status::Cancelled => instance.cancel_reason.as_deref(),
        _ => None,
    }
}

fn waits_for(instance: &Instance, now: Timestamp) -> Markup {
    let until =
        |word: &str| html! { @if let Some(at) = instance.wake_at { span.muted { (word) (time(at, now)) } } };
    match instance.status {
        Status::AwaitingSignal => html! { (short(&instance.awaits.join(" or "), 60)) (until(", at most ")) },
        Status::AwaitingChildren => {
            html! { (instance.barrier.unwrap_or(0)) " children" (until(", at most ")) }
        }
        Status::AwaitingCompletion => {
            html! { (instance.barrier.unwrap_or(0)) " answers" (until(", at most ")) }
        }
        Status::Scheduled if instance.wake_at.is_some_and(|at| at <= now) => {
            html! { span.muted { "the clock, any moment" } }
        }
        Status::Scheduled => until("the clock, "),
        Status::Runnable if instance.lane_blocked => html! { "its lane" },
        _ => html! {},
    }
}
