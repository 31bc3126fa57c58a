//! The list of instances. Its filters are in the address, and the selected instances can be acted on together.

use dormouse::jiff::Timestamp;
use dormouse::store::{Count, Filter, Page};
use dormouse::{Instance, InstanceId, Status, UnknownWord};
use maud::{Markup, html};

use super::Answered;
use super::bulk::Verb;
use super::fields::Fields;
use super::json::short;
use super::layout::Shell;
use super::parts::{self, number, time};
use super::visit::Visit;
use crate::api::Overview;
use crate::cursor::{self, List};
use crate::problem::Problem;

const ROWS: usize = 50;
/// How many machines the filter offers; others can be typed.
const OFFERED: usize = 200;
/// The query parameters that choose instances.
pub(super) const FILTERS: [&str; 8] =
    ["machine", "status", "queue", "key", "awaiting", "parent", "roots", "tag"];

pub(super) async fn show(visit: Visit) -> Answered {
    let overview = Overview::of(&visit.client).await?;
    let after =
        visit.query.get("cursor").map(|cursor| cursor::decode(List::Instances, cursor)).transpose()?;
    let filter =
        Filter { after: after.map(InstanceId), limit: ROWS, heads_only: true, ..filter(&visit.query)? };
    let machine = filter.machine.clone();
    // If the stored counts have none, skip the search of the table.
    let is_there = |count: &Count| {
        machine.as_ref().is_none_or(|machine| *machine == count.machine)
            && filter.status.is_none_or(|status| status == count.status)
    };
    let page = match overview.more || overview.counts.iter().any(is_there) {
        true => visit.client.list(filter).await?,
        false => Page::default(),
    };
    let (s, query) = (&visit.shell, visit.query.with(&[("notice", None)]));
    let next = page.next.map(|id| cursor::encode(List::Instances, id.0));
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
            (parts::pager(first, next))
        },
    )
}

/// The filter that the address describes.
pub(super) fn filter(query: &Fields) -> Result<Filter, Problem> {
    let status = query
        .get("status")
        .map(|word| word.parse().map_err(|unknown: UnknownWord| Problem::invalid(unknown.to_string())));
    let parent = query.get("parent").map(|text| {
        text.parse().map_err(|_| Problem::invalid(format!("{text:?} is not the id of an instance")))
    });
    Ok(Filter {
        machine: query.text("machine"),
        status: status.transpose()?,
        queue: query.text("queue"),
        key_prefix: query.text("key"),
        awaiting: query.text("awaiting"),
        parent: parent.transpose()?.map(InstanceId),
        roots: query.get("roots") == Some("true"),
        tags: tags(query),
        ..Filter::default()
    })
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
    let chosen = query.get("status");
    let tab = |status: Option<Status>| {
        let word = status.map(Status::as_str);
        let to = query.with(&[("status", word), ("cursor", None)]).query();
        html! {
            li { a href=(s.at(&format!("/instances{to}"))) aria-current=[(word == chosen).then_some("true")] data-status=[word] {
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
            @if let Some(status) = query.get("status") { input type="hidden" name="status" value=(status); }
            div {
                label for="filter-machine" { "Machine" }
                input #filter-machine name="machine" value=[query.get("machine")] list="machines" placeholder="any" spellcheck="false";
                datalist #machines { @for machine in machines { option value=(machine) {} } }
            }
            (parts::filter(query, "key", "Key starts with", "order:"))
            (parts::filter(query, "queue", "Queue", "any"))
            (parts::filter(query, "awaiting", "Waits for signal", "any"))
            (parts::filter(query, "parent", "Child of", "number"))
            (tag_filter(s, query))
            div.checks { label.check {
                input #filter-roots type="checkbox" name="roots" value="true" checked[query.get("roots") == Some("true")];
                " roots only"
            } }
            div.buttons {
                button.primary type="submit" { "Filter" }
                a href=(s.at("/instances")) { "Clear" }
            }
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
                button type="submit" name="verb" value=(verb.word()) { (verb.button()) "…" }
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

/// Instances as a table.
pub(super) fn rows(s: &Shell, instances: &[Instance], now: Timestamp, can_choose: bool) -> Markup {
    let head = html! {
        @if can_choose { th.choose scope="col" { input #choose-all type="checkbox" aria-label="Choose all on this page" hidden; } }
        th scope="col" { "Instance" } th scope="col" { "Machine" } th scope="col" { "Status" } th scope="col" { "Step" }
        th scope="col" { "Waits for" } th scope="col" { "Queue" } th scope="col" { "Changed" }
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
                    td { (instance.step) @if instance.attempt > 0 { span.muted.small { " try " (instance.attempt + 1) } } }
                    td.wide { (waits_for(instance, now)) }
                    td { (instance.queue) }
                    td { (time(instance.changed_at, now)) }
                }
            }
        },
    )
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
        Status::Failed => {
            html! { span.bad { (short(instance.last_error.as_deref().unwrap_or_default(), 60)) } }
        }
        Status::Cancelled => {
            html! { span.muted { (short(instance.cancel_reason.as_deref().unwrap_or_default(), 60)) } }
        }
        Status::Runnable if instance.lane_blocked => html! { "its lane" },
        _ => html! {},
    }
}
