//! The picture of a machine's graph: with counts for a machine, or with the path taken by one instance.

use dormouse::graph::Marks;
use dormouse::store::Count;
use dormouse::{Declaration, Instance, Status};
use maud::{Markup, PreEscaped, html};

use super::timeline::Timeline;

/// Draws how many live instances are at each step.
pub(super) fn of_machine(declared: Option<&Declaration>, counts: &[Count]) -> Option<Markup> {
    let mut marks = Marks::default();
    for count in counts.iter().filter(|count| !count.status.is_terminal()) {
        *marks.counts.entry(count.step.clone()).or_default() += count.count;
    }
    drawn(declared?, &marks)
}

/// Draws the path that an instance took, and where it is.
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

/// The picture contains only shapes and names, and drawing escapes the names.
fn drawn(declared: &Declaration, marks: &Marks) -> Option<Markup> {
    // Inline SVG needs no namespace declaration.
    let picture =
        declared.graph.as_ref()?.svg_with(marks).replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
    Some(html! { section.card { h2 { "Graph" } div.graph tabindex="0" { (PreEscaped(picture)) } } })
}
