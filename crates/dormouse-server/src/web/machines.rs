//! Machines: which workers run which version, and how many instances are at which step.

use std::collections::{BTreeMap, BTreeSet};

use dormouse::store::Count;
use dormouse::{Declaration, Status};
use maud::{Markup, html};

use super::Answered;
use super::fields::Fields;
use super::layout::Shell;
use super::pace::{self, Of};
use super::parts::{self, number};
use super::pulse::Pulse;
use super::visit::Visit;
use super::{chart, graph, versions};
use crate::api::Overview;
use crate::problem::{Cause, Problem};

/// The most machines, or steps of one, to show; the API has more.
const ROWS: usize = 200;

pub(super) async fn show(visit: Visit) -> Answered {
    let overview = Overview::of(&visit.client).await?;
    let machines = machines(&visit, &overview);
    let names = machines.keys().copied().take(ROWS);
    let paces = Pulse::paces(&visit.app, visit.client.namespace(), overview.now, Of::Machine, names).await;
    let s = &visit.shell;
    visit.page("Machines", &html! {
        h1 { "Machines" }
        section.card #machines data-live data-live-every="2" {
            @if machines.is_empty() {
                (parts::empty("No machine is known.", &html! {
                    "A machine appears here as soon as a worker runs it or an instance of it exists."
                }))
            } @else {
                (versions::warning(s, &overview.unserved()))
                (cut(overview.more || machines.len() > ROWS))
                (parts::table("Machines", &parts::columns(&["Machine", "Running versions", "#Workers", "In flight", "#Live", "#Done", "#Failed", "#Runs /s", "#p50", "#p95", "#p99"]), &html! {
                    @for ((name, machine), pace) in machines.iter().zip(&paces) {
                        tr data-machine=(name) {
                            th scope="row" { (parts::machine_link(s, name)) }
                            td { (runs(machine)) }
                            td.num { (machine.workers) }
                            td { (versions::in_flight(&overview.in_flight(name))) }
                            td.num { (number(machine.count(|status| !status.is_terminal()))) }
                            td.num { (number(machine.count(|status| status == Status::Done))) }
                            td.num { (number(machine.count(|status| status == Status::Failed))) }
                            (pace::cells(pace))
                        }
                    }
                }))
                p.muted.small { "Runs of steps on all workers in the last five minutes, and how long they took." }
            }
        }
    })
}

/// A note that the list is incomplete.
fn cut(is_cut: bool) -> Markup {
    html! {
        @if is_cut { p.muted #cut { "There are more than are shown here. Filter the instances by machine to see the others." } }
    }
}

/// What the page knows about a machine.
#[derive(Default)]
struct Machine<'a> {
    /// The versions that live workers run.
    versions: BTreeSet<u32>,
    workers: usize,
    counts: &'a [Count],
}

impl Machine<'_> {
    fn count(&self, is_it: impl Fn(Status) -> bool) -> u64 {
        self.counts.iter().filter(|count| is_it(count.status)).map(|count| count.count).sum()
    }
}

fn machines<'a>(visit: &'a Visit, overview: &'a Overview) -> BTreeMap<&'a str, Machine<'a>> {
    let mut machines = BTreeMap::<&str, Machine<'_>>::new();
    if !visit.caller.is_tenant() {
        for code in visit.client.registry().machines() {
            machines.entry(code.name()).or_default();
        }
    }
    for worker in overview.live_workers() {
        for name in worker.machines.iter().map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>() {
            machines.entry(name).or_default().workers += 1;
        }
        for (name, version) in &worker.machines {
            machines.entry(name).or_default().versions.insert(*version);
        }
    }
    for counts in overview.counts.chunk_by(|one, other| one.machine == other.machine) {
        machines.entry(&counts[0].machine).or_default().counts = counts;
    }
    machines
}

/// The versions that live workers run.
fn runs(machine: &Machine<'_>) -> Markup {
    html! {
        @if machine.versions.is_empty() { span.bad { "no worker runs it" } }
        @for (index, version) in machine.versions.iter().enumerate() { @if index > 0 { ", " } "v" (version) }
    }
}

pub(super) async fn one(visit: Visit) -> Answered {
    let overview = Overview::of(&visit.client).await?;
    let machines = machines(&visit, &overview);
    let name = visit.path("machine");
    let unknown = || {
        let more = if overview.more { " among the first 5,000 places" } else { "" };
        Problem::new(
            Cause::NotFound,
            format!("no worker runs machine {name:?}, and it has no instances{more}"),
        )
    };
    let machine = machines.get(name).ok_or_else(unknown)?;
    let in_flight = overview.in_flight(name);
    let unserved: Vec<_> =
        in_flight.iter().filter(|version| version.workers == 0).map(|version| (name, *version)).collect();
    let declared = visit.client.declarations().await?;
    let declared = declared.iter().find(|declared| declared.name == name).map(|declared| &**declared);
    let pace =
        Pulse::paces(&visit.app, visit.client.namespace(), overview.now, Of::Machine, [name].into_iter())
            .await;
    let pace = pace.first().copied().unwrap_or_default();
    let s = &visit.shell;
    visit.page(name, &html! {
        p.crumbs { a href=(s.at("/machines")) { "Machines" } }
        h1 { (name) }
        div #machine data-machine=(name) data-live data-live-every="2" {
            (versions::warning(s, &unserved))
            dl.facts {
                div { dt { "Running versions" } dd { (runs(machine)) } }
                div { dt { "Workers" } dd { (machine.workers) } }
                div { dt { "In flight" } dd { (versions::in_flight(&in_flight)) } }
                div { dt { "Live instances" } dd { (number(machine.count(|status| !status.is_terminal()))) } }
                @if pace.count > 0 {
                    div { dt { "Runs in five minutes" } dd #pace { (number(pace.count)) ", half within " (pace::told(pace.us[0])) ", 95 % within " (pace::told(pace.us[1])) ", 99 % within " (pace::told(pace.us[2])) } }
                }
                @if let Some(Declaration { queue, accepts, .. }) = declared {
                    div { dt { "Queue" } dd { (queue) } }
                    @if !accepts.is_empty() {
                        div {
                            dt { "Signals it checks" }
                            dd { @for (index, accepted) in accepts.iter().enumerate() { @if index > 0 { ", " } (parts::waiting_link(s, &accepted.signal)) } }
                        }
                    }
                }
            }
            @if let Some(drawing) = graph::of_machine(declared, machine.counts) { (drawing) }
            (places(s, name, machine, declared))
        }
        p { a href=(s.at(&format!("/instances{}", Fields::default().with(&[("machine", Some(name))]).query()))) { "Its instances" } }
    })
}

/// How many instances are at each step, in the order of the code if it is known.
fn places(s: &Shell, name: &str, machine: &Machine<'_>, declared: Option<&Declaration>) -> Markup {
    let mut found = BTreeMap::<&str, BTreeMap<Status, u64>>::new();
    for Count { step, status, count, .. } in machine.counts {
        *found.entry(step).or_default().entry(*status).or_default() += count;
    }
    let mut steps: Vec<&str> =
        declared.into_iter().flat_map(|declared| &declared.steps).map(|step| &**step).collect();
    let known: BTreeSet<&str> = steps.iter().copied().collect();
    steps.extend(found.keys().filter(|step| !known.contains(*step)));
    let is_cut = steps.len() > ROWS;
    steps.truncate(ROWS);
    let used: Vec<Status> =
        Status::ALL.into_iter().filter(|status| machine.count(|is| is == *status) > 0).collect();
    let at = |step: &str, status: Option<Status>| -> u64 {
        let counts = found.get(step).into_iter().flatten();
        counts.filter(|(is, _)| status.is_none_or(|status| status == **is)).map(|(_, count)| count).sum()
    };
    let most = steps.iter().map(|step| at(step, None)).max().unwrap_or(0);
    let to = |status: Status| {
        Fields::default().with(&[("machine", Some(name)), ("status", Some(status.as_str()))]).query()
    };
    html! {
        section.card {
            h2 { "Steps" }
            @if steps.is_empty() {
                (parts::empty("It has no instances.", &html! {
                    "Its steps appear as soon as a worker with this version of dormouse runs it."
                }))
            } @else {
                (cut(is_cut))
                (parts::table("Instances by step and status", &html! {
                    th scope="col" { "Step" } th scope="col" { span.unseen { "Share" } }
                    @for status in &used { th.num scope="col" { a href=(s.at(&format!("/instances{}", to(*status)))) { (parts::status(*status)) } } }
                    th.num scope="col" { "All" }
                }, &html! {
                    @for step in &steps {
                        tr data-step=(step) {
                            th scope="row" { (step) }
                            td.bar { (chart::share(at(step, None), most)) }
                            @for status in &used {
                                @let count = at(step, Some(*status));
                                td.num { @if count == 0 { span.muted { "·" } } @else { (number(count)) } }
                            }
                            td.num { (number(at(step, None))) }
                        }
                    }
                }))
            }
        }
    }
}
