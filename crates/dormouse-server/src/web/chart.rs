//! Small charts as SVG, without a script.

use maud::{Markup, html};

const WIDTH: usize = 240;
const HEIGHT: usize = 44;

/// Bars from oldest to newest, with a text alternative for screen readers.
pub(super) fn bars(class: &str, label: &str, values: &[u64]) -> Markup {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let step = WIDTH as f64 / values.len().max(1) as f64;
    // A nonzero value always has a visible bar.
    let height = |value: u64| {
        if value == 0 { 0.0 } else { (value as f64 / most as f64 * (HEIGHT - 2) as f64).max(2.0) }
    };
    html! {
        svg class={"chart " (class)} viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(label) preserveAspectRatio="none" {
            line.base x1="0" x2=(WIDTH) y1=(HEIGHT) y2=(HEIGHT) {}
            @for (index, value) in values.iter().enumerate() {
                @if *value > 0 {
                    @let (x, height) = (index as f64 * step, height(*value));
                    rect x=(place(x)) y=(place(HEIGHT as f64 - height)) width=(place((step - 0.8).max(0.4))) height=(place(height)) {}
                }
            }
        }
    }
}

/// A value relative to the maximum, as a bar in a table.
pub(super) fn share(value: u64, most: u64) -> Markup {
    let width = if value == 0 { 0.0 } else { (value as f64 / most.max(1) as f64 * 100.0).max(1.5) };
    html! {
        svg.share viewBox="0 0 100 6" aria-hidden="true" preserveAspectRatio="none" {
            rect x="0" y="0" width=(place(width)) height="6" rx="1" {}
        }
    }
}

fn place(value: f64) -> String {
    format!("{value:.1}")
}
