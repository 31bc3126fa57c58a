//! The picture of a machine's graph: with counts for the machine, with the path taken for one instance.

use dormouse::graph::Marks;
use dormouse::store::Count;
use dormouse::{Declaration, Instance, Status};
use maud::{Markup, PreEscaped, html};

use super::timeline::Timeline;

/// How many live instances are at which step.
pub(super) fn of_machine(declared: Option<&Declaration>, counts: &[Count]) -> Option<Markup> {
    let mut marks = Marks::default();
    for count in counts.iter().filter(|count| !count.status.is_terminal()) {
        *marks.counts.entry(count.step.clone()).or_default() += count.count;
    }
    drawn(declared?, &marks)
}

/// The way that an instance took, and where it is.
pub(super) fn of_instance(
    declared: Option<&Declaration>,
    instance: &Instance,
    timeline: &Timeline,
) -> Option<Markup> {
    let mut path = timeline.steps();
    let end = match instance.status {
        Status::Done => Some("done"),
        Status::Failed => Some("failed"),
        _ => None,
    };
    path.extend(end.map(str::to_owned));
    let here = (!instance.status.is_terminal()).then(|| instance.step.clone());
    drawn(declared?, &Marks { counts: Default::default(), path, here })
}

/// The picture is made of shapes and names, and the names are escaped where it is drawn.
fn drawn(declared: &Declaration, marks: &Marks) -> Option<Markup> {
    // Inside a page it needs no namespace of its own.
    let picture =
        declared.graph.as_ref()?.svg_with(marks).replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
    Some(html! { section.card { h2 { "Graph" } div.graph tabindex="0" { (PreEscaped(picture)) } } })
}
