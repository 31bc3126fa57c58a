//! The picture of a machine's graph: with counts for the machine, with the path taken for one instance.

use std::sync::Arc;

use dormouse::graph::Marks;
use dormouse::store::Count;
use dormouse::{Client, DynMachine, Instance, Status};
use maud::{Markup, PreEscaped, html};

use super::timeline::Timeline;

/// How many live instances are at which step.
pub(super) fn of_machine(code: Option<&Arc<dyn DynMachine>>, counts: &[&Count]) -> Option<Markup> {
    let mut marks = Marks::default();
    for count in counts.iter().filter(|count| !count.status.is_terminal()) {
        *marks.counts.entry(count.step.clone()).or_default() += count.count;
    }
    drawn(code?, &marks)
}

/// The way that an instance took, and where it is.
pub(super) fn of_instance(client: &Client, instance: &Instance, timeline: &Timeline) -> Option<Markup> {
    let mut path = timeline.steps();
    let end = match instance.status {
        Status::Done => Some("done"),
        Status::Failed => Some("failed"),
        _ => None,
    };
    path.extend(end.map(str::to_owned));
    let here = (!instance.status.is_terminal()).then(|| instance.step.clone());
    let code = client.registry().get(&instance.machine, instance.version)?;
    drawn(code, &Marks { counts: Default::default(), path, here })
}

/// The picture is made of shapes and names, and the names are escaped where it is drawn.
fn drawn(code: &Arc<dyn DynMachine>, marks: &Marks) -> Option<Markup> {
    // Inside a page it needs no namespace of its own.
    let picture = code.graph()?.svg_with(marks).replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
    Some(html! { section.card { h2 { "Graph" } div.graph tabindex="0" { (PreEscaped(picture)) } } })
}
