//! The page of one instance: where it is and why, its history, its documents, and the actions on it.

use dormouse::jiff::Timestamp;
use dormouse::store::{Filter, InteractionFilter, Progress};
use dormouse::{Instance, InstanceId, Interaction, Status, UnitView};
use maud::{Markup, html};

use super::Answered;
use super::layout::{Shell, sentence};
use super::parts::{self, time};
use super::visit::Visit;
use super::{act, amend, commands, graph, json, mail, timeline, what_if};
use crate::problem::Problem;

/// The most interactions to show; the API lists all.
const ROWS: usize = 20;
/// How much of the sentence about an instance to show as its headline: an error in it may be a whole stack trace.
const WHY_CHARS_MAX: usize = 280;
/// How deep to show descendants, and how many in all.
const TREE_DEPTH: usize = 3;
const TREE_ROWS: usize = 60;

pub(super) async fn show(visit: Visit) -> Answered {
    let instance = visit.instance().await?;
    let (id, now) = (instance.id, visit.client.store().about().await?.now);
    let why = visit.client.explain(id).await?;
    let timeline = timeline::read(&visit, &instance).await?;
    let inbox = amend::read(&visit, &instance).await?;
    let sent = visit.client.mail(id).await?;
    let tree = children(&visit, id).await?;
    let unit = visit.client.unit(id).await?;
    let asked = InteractionFilter { instance: Some(id), limit: ROWS, ..InteractionFilter::default() };
    let asked = if unit.is_some() { visit.client.interactions(asked).await?.items } else { Vec::new() };
    let progress = match instance.status {
        Status::Executing => visit.client.progress(id).await?,
        _ => None,
    };
    let declared = visit.client.declaration(&instance.machine, instance.version).await?;
    let s = &visit.shell;
    visit.page(&parts::name(&instance), &html! {
        article #instance data-instance=(id) data-status=(instance.status.as_str()) {
            div #head data-live {
                (head(s, &instance, &why, now))
            }
            @if s.may_operate() { (act::bar(s, declared.as_deref(), &instance)) }
            p #ahead data-live { (what_if::link(s, &visit.client, &instance)) }
            (commands::of_instance(s, &instance))
            div.columns {
                div {
                    div #graph data-live { @if let Some(drawing) = graph::of_instance(declared.as_deref(), &instance, &timeline) { (drawing) } }
                    div #timeline data-live { (timeline::show(s, &instance, &timeline, now)) }
                }
                div {
                    div #state data-live { (documents(&instance, progress.as_ref(), now)) }
                    div #inbox data-live {
                        (amend::card(s, &instance, &inbox, now))
                    }
                    div #mail data-live { @if !sent.is_empty() { (mail::card(&sent, now)) } }
                    div #family data-live { (family(s, &instance, &tree)) }
                    div #unit data-live { @if let Some(unit) = &unit { (unit_card(s, unit, &asked, now)) } }
                }
            }
        }
    })
}

fn head(s: &Shell, instance: &Instance, why: &str, now: Timestamp) -> Markup {
    // The sentence starts with words that the heading already has.
    let why = why.split_once("): ").map_or(why, |(_, why)| why);
    let is_cut = why.chars().nth(WHY_CHARS_MAX).is_some();
    let why = if is_cut { json::short(why, WHY_CHARS_MAX) } else { sentence(why) };
    let fact = |name: &str, value: Markup| html! { div { dt { (name) } dd { (value) } } };
    html! {
        p.crumbs { a href=(s.at("/instances")) { "Instances" } " / " (parts::machine_link(s, &instance.machine)) }
        h1 { (parts::name(instance)) " " span #status { (parts::status(instance.status)) } @if instance.paused { " " span.badge { "paused" } } }
        p.why #why data-announce=(format!("{} {} {}", instance.status.as_str(), instance.step, instance.paused)) {
            (why)
            @if is_cut && instance.last_error.is_some() { " " a href="#last-error" { "The whole error" } }
        }
        dl.facts {
            (fact("Number", html! { (instance.id) }))
            (fact("Machine", html! { (instance.machine) " v" (instance.version) }))
            (fact("Step", html! { (instance.step) }))
            (fact("Queue", html! { (instance.queue) @if instance.priority != 0 { ", priority " (instance.priority) } }))
            (fact("Transitions", html! { (instance.seq) }))
            @if instance.attempt > 0 { (fact("Tries so far", html! { (instance.attempt) })) }
            @if let Some(lane) = &instance.lane { (fact("Lane", html! { (lane) })) }
            @if let Some(share) = &instance.share { (fact("Share", html! { (share) })) }
            @if let Some(trace) = &instance.trace { (fact("Trace", html! { code #trace { (trace.trace_id()) } })) }
            @if let Some(worker) = instance.worker { (fact("Worker", html! { a href=(s.at("/workers")) { (worker.0) } })) }
            @if let Some(at) = instance.wake_at { (fact("Clock", time(at, now))) }
            (fact("Created", time(instance.created_at, now)))
            (fact("Changed", time(instance.changed_at, now)))
            @if let Some(at) = instance.ended_at { (fact("Ended", time(at, now))) }
            @if !instance.tags.is_empty() { (fact("Tags", parts::tags(s, &instance.tags))) }
        }
    }
}

fn documents(instance: &Instance, progress: Option<&Progress>, now: Timestamp) -> Markup {
    html! {
        section.card {
            @if let Some(progress) = progress {
                h2 { "Progress " span.muted { (time(progress.at, now)) } }
                (json::show(progress.value.as_str()))
            }
            @if let Some(output) = &instance.output { h2 { "Output" } (json::show(output.as_str())) }
            @if let Some(error) = instance.last_error.as_ref().filter(|_| instance.status != Status::Done) {
                h2 #last-error { "Last error" } pre.json.bad tabindex="0" { code { (json::short(error, 4_000)) } }
            }
            h2 { "State" }
            (json::show(instance.state.as_str()))
        }
    }
}

/// A descendant, and how deep it is.
type Leaf = (usize, Instance);

/// The descendants, each after its parent.
async fn children(visit: &Visit, root: InstanceId) -> Result<Vec<Leaf>, Problem> {
    let mut tree = Vec::new();
    let mut next = vec![(0, root)];
    while let Some((depth, parent)) = next.pop() {
        let limit = TREE_ROWS.saturating_sub(tree.len());
        if depth >= TREE_DEPTH || limit == 0 {
            continue;
        }
        let of = Filter { parent: Some(parent), limit, heads_only: true, ..Filter::default() };
        let found = visit.client.list(of).await?.instances;
        let place = tree.iter().position(|(_, leaf): &Leaf| leaf.id == parent).map_or(0, |at| at + 1);
        // Only instances that wait or have waited for children can have some; skip the query for others.
        next.extend(found.iter().filter(|child| child.round > 0).map(|child| (depth + 1, child.id)));
        tree.splice(place..place, found.into_iter().map(|child| (depth, child)));
    }
    Ok(tree)
}

fn family(s: &Shell, instance: &Instance, tree: &[Leaf]) -> Markup {
    let counted = instance.parent.is_some() || !tree.is_empty();
    html! {
        @if counted {
            section.card {
                h2 { "Family" }
                @if let Some(parent) = instance.parent {
                    p {
                        @if let Some(index) = instance.parent_index { "Child " (index + 1) } @else { "A child" }
                        @if let Some(round) = instance.parent_round.filter(|round| *round > 1) { " of round " (round) }
                        " of " a href=(s.at(&format!("/instances/{parent}"))) { "#" (parent) } "."
                    }
                }
                @if !tree.is_empty() {
                    ul.tree aria-label="Children" {
                        @for (depth, child) in tree {
                            li #{"child-" (child.id)} data-instance=(child.id) data-status=(child.status.as_str()) data-depth=(depth) {
                                (parts::link(s, child)) " " span.muted { (child.machine) ", " (child.step) } " " (parts::status(child.status))
                            }
                        }
                    }
                    @if tree.len() >= TREE_ROWS { p { a href=(s.at(&format!("/instances?parent={}", instance.id))) { "All its children" } } }
                }
            }
        }
    }
}

fn unit_card(s: &Shell, unit: &UnitView, asked: &[Interaction], now: Timestamp) -> Markup {
    html! {
        section.card data-unit=(unit.id) {
            h2 { "Unit" }
            p {
                (parts::tagged(unit.status.as_str()))
                " " (parts::words(unit.shape.as_str())) " by " (unit.transport) ", opened " (time(unit.opened_at, now)) ": "
                (unit.completed) " of " (unit.interactions) " answered"
                @if unit.failed > 0 { ", " (unit.failed) " failed" }
                @if let Some(quorum) = unit.quorum { ", " (quorum) " are enough" }
                @if let Some(at) = unit.deadline { ", deadline " (time(at, now)) }
                "."
            }
            @for one in asked {
                details #{"interaction-" (one.id)} data-interaction=(one.id) {
                    summary {
                        a href=(s.at(&format!("/inbox/{}", one.id))) { "Item " (one.item) } " "
                        (parts::tagged(one.status.as_str()))
                        @match (&one.answered_by, &one.assignee) {
                            (Some(who), _) => span.muted { " answered by " (who) },
                            (None, Some(who)) => span.muted { " claimed by " (who) },
                            (None, None) => {},
                        }
                    }
                    h3 { "Asked" } (json::show(one.request.as_str()))
                    @if let Some(output) = &one.output { h3 { "Answered" } (json::show(output.as_str())) }
                    @if let Some(error) = &one.error { h3 { "Failed" } p.bad { (json::short(error, 1_000)) } }
                }
            }
        }
    }
}
