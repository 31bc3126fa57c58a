//! Graphs, drawn. Colours are attributes, so that a picture stands alone, and every shape has a class, so that the style
//! sheet of a page can say otherwise.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::layout::{Room, layout};
use super::text::escaped;
use super::{Graph, NodeKind, Way};

const ROOM: Room = Room { height: 42.0, between: 28.0, layer: 46.0 };
const MARGIN: f64 = 24.0;
const CHAR_WIDTH: f64 = 7.3;

/// What to show on a drawing besides the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// How many instances are at each step.
    pub counts: BTreeMap<String, u64>,
    /// The steps that one instance took, in order.
    pub path: Vec<String>,
    /// Where it is now.
    pub here: Option<String>,
}

impl Marks {
    fn took(&self, from: &str, to: &str) -> bool {
        self.path.windows(2).any(|pair| pair[0] == from && pair[1] == to)
    }
}

impl Graph {
    /// As a picture in SVG.
    pub fn svg(&self) -> String {
        self.svg_with(&Marks::default())
    }

    /// As a picture in SVG, with marks on it.
    pub fn svg_with(&self, marks: &Marks) -> String {
        let mut text = String::new();
        self.draw(marks, &mut text).expect("a string takes all");
        text
    }

    fn draw(&self, marks: &Marks, out: &mut String) -> fmt::Result {
        let ways = self.drawn();
        let widths: Vec<f64> = self.nodes.iter().map(|node| width(&node.step)).collect();
        let layout = layout(&widths, &ways, ROOM);
        let curves: Vec<_> =
            ways.iter().zip(&layout.ways).map(|(way, points)| curve(points, widths[way.from])).collect();
        let labels = labels(&ways, &curves);
        let left = labels.iter().map(Label::left).fold(0.0, f64::min) - MARGIN;
        let right = labels.iter().map(Label::right).fold(layout.width, f64::max) + MARGIN;
        let (width, height) = (right - left, layout.height + 2.0 * MARGIN);
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph\" \
             viewBox=\"{left:.0} {} {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" font-family=\"system-ui, sans-serif\" \
             font-size=\"13\">\n<title>{} steps and the ways between them</title>\n\
             <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"9\" \
             markerHeight=\"9\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">\
             <path d=\"M0 0L8 4L0 8z\" fill=\"#8a8f98\"/></marker></defs>",
            -MARGIN,
            self.nodes.len()
        )?;
        for (way, (path, _)) in ways.iter().zip(&curves) {
            self.draw_way(way, path, marks, out)?;
        }
        for ((index, &width), &(x, y)) in widths.iter().enumerate().zip(&layout.nodes) {
            self.draw_node(index, width, (x, y), marks, out)?;
        }
        for Label { text, x, y } in labels {
            writeln!(
                out,
                "<text class=\"label\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" font-size=\"11\" \
                 fill=\"#6b7280\" stroke=\"#fff\" stroke-width=\"4\" paint-order=\"stroke\">{}</text>",
                escaped(&text)
            )?;
        }
        out.push_str("</svg>\n");
        Ok(())
    }

    fn draw_way(&self, way: &Way, path: &str, marks: &Marks, out: &mut String) -> fmt::Result {
        let took = marks.took(&self.nodes[way.from].step, &self.nodes[way.to].step);
        let class = if took { "way taken" } else { "way" };
        let (colour, thick) = if took { ("#2f7d5b", 2.5) } else { ("#8a8f98", 1.3) };
        let dashes = if way.quiet { " stroke-dasharray=\"4 4\"" } else { "" };
        writeln!(
            out,
            "<path class=\"{class}\" d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{thick}\"{dashes} \
             marker-end=\"url(#arrow)\"/>"
        )
    }

    fn draw_node(
        &self,
        index: usize,
        width: f64,
        (x, y): (f64, f64),
        marks: &Marks,
        out: &mut String,
    ) -> fmt::Result {
        let node = &self.nodes[index];
        let step = &node.step;
        let (kind, fill, stroke) = look(node.kind);
        let here = marks.here.as_ref() == Some(step);
        let took = marks.path.contains(step);
        let class =
            format!("node {kind}{}{}", if took { " taken" } else { "" }, if here { " here" } else { "" });
        let thick = if here { 3.0 } else { 1.3 };
        let corner = match node.kind {
            NodeKind::Act | NodeKind::Undo => 4.0,
            NodeKind::Branch | NodeKind::Repeat => 0.0,
            _ => ROOM.height / 2.0,
        };
        let (left, top, height) = (x - width / 2.0, y - ROOM.height / 2.0, ROOM.height);
        writeln!(out, "<g class=\"{class}\" data-step=\"{0}\"><title>{0}</title>", escaped(step))?;
        writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height}\" rx=\"{corner}\" \
             fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"{thick}\"/>"
        )?;
        let (scene, name) = step.rsplit_once('/').map_or((None, step.as_str()), |(s, n)| (Some(s), n));
        let below = if scene.is_some() { 10.0 } else { 4.5 };
        if let Some(scene) = scene {
            writeln!(
                out,
                "<text class=\"scene\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10\" \
                 fill=\"#6b7280\">{}</text>",
                y - 5.0,
                escaped(&shortened(scene))
            )?;
        }
        writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#1f2328\">{}</text>",
            y + below,
            escaped(&shortened(name))
        )?;
        if let Some(count) = marks.counts.get(step).filter(|count| **count > 0) {
            writeln!(
                out,
                "<text class=\"count\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"11\" \
                 font-weight=\"600\" fill=\"#0b5cad\">{count}</text>",
                x + width / 2.0 - 6.0,
                y - 9.0
            )?;
        }
        writeln!(out, "</g>")
    }
}

/// A kind's class, filling and border.
fn look(kind: NodeKind) -> (&'static str, &'static str, &'static str) {
    match kind {
        NodeKind::Act => ("act", "#f6f8fa", "#57606a"),
        NodeKind::Undo => ("undo", "#fff5f0", "#b4552d"),
        NodeKind::Signal => ("signal", "#fff8e1", "#b7791f"),
        NodeKind::Sleep => ("sleep", "#eef2ff", "#5a67b8"),
        NodeKind::Branch => ("branch", "#f3f0fa", "#7a5bb0"),
        NodeKind::Repeat => ("repeat", "#f3f0fa", "#7a5bb0"),
        NodeKind::Children => ("children", "#e8f6f8", "#2b7f8c"),
        NodeKind::Dispatch => ("dispatch", "#e8f6f8", "#2b7f8c"),
        NodeKind::Fail => ("fail", "#fdecec", "#b42318"),
        NodeKind::End => ("end", "#e9f7ef", "#2f7d5b"),
    }
}

/// Names longer than this are cut in the picture; the whole is in the title.
const NAME_CHARS_MAX: usize = 26;

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_CHARS_MAX {
        return name.to_owned();
    }
    let kept: String = name.chars().take(NAME_CHARS_MAX - 1).collect();
    format!("{kept}…")
}

fn width(step: &str) -> f64 {
    let (scene, name) = step.rsplit_once('/').unwrap_or(("", step));
    let chars = |text: &str| text.chars().count().min(NAME_CHARS_MAX) as f64;
    (chars(name) * CHAR_WIDTH).max(chars(scene) * 6.0).max(48.0) + 40.0
}

/// What is written on a way, around its middle.
struct Label {
    text: String,
    x: f64,
    y: f64,
}

impl Label {
    fn left(&self) -> f64 {
        self.x - self.text.chars().count() as f64 * LABEL_CHAR_WIDTH / 2.0
    }

    fn right(&self) -> f64 {
        2.0 * self.x - self.left()
    }

    fn touches(&self, other: &Self) -> bool {
        self.left() < other.right() && other.left() < self.right() && (self.y - other.y).abs() < LABEL_HEIGHT
    }
}

const LABEL_CHAR_WIDTH: f64 = 6.2;
const LABEL_HEIGHT: f64 = 13.0;

/// Each label near the middle of its way, and above or below it where another one is.
fn labels(ways: &[Way], curves: &[(String, (f64, f64))]) -> Vec<Label> {
    let mut placed: Vec<Label> = Vec::new();
    for (way, (_, (x, y))) in ways.iter().zip(curves) {
        let text = way.label();
        if text.is_empty() {
            continue;
        }
        let at = |shift: f64| Label { text: text.clone(), x: *x, y: y + shift };
        let free = |label: &Label| !placed.iter().any(|other| label.touches(other));
        let shifts = [0.0, LABEL_HEIGHT, -LABEL_HEIGHT, 2.0 * LABEL_HEIGHT];
        let label = shifts.into_iter().map(at).find(free).unwrap_or_else(|| at(0.0));
        placed.push(label);
    }
    placed
}

/// A smooth line through points, and where to write on it.
fn curve(points: &[(f64, f64)], width: f64) -> (String, (f64, f64)) {
    let mut path = String::new();
    let line = "a string takes all";
    if let [(x, y)] = points {
        // Back to where it came from: an ear at the right side.
        let (x, reach) = (x + width / 2.0, 34.0);
        write!(path, "M{x:.1} {:.1}c{reach} -10 {reach} 30 0 20", y - 10.0).expect(line);
        return (path, (x + reach + 24.0, y - 14.0));
    }
    let (x, y) = points[0];
    write!(path, "M{x:.1} {y:.1}").expect(line);
    for pair in points.windows(2) {
        let ((x, y), (to_x, to_y)) = (pair[0], pair[1]);
        let bend = (to_y - y) / 2.0;
        write!(path, "C{x:.1} {:.1} {to_x:.1} {:.1} {to_x:.1} {to_y:.1}", y + bend, to_y - bend).expect(line);
    }
    let middle = (points.len() - 1) / 2;
    let ((x, y), (to_x, to_y)) = (points[middle], points[middle + 1]);
    (path, ((x + to_x) / 2.0, (y + to_y) / 2.0 + 4.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each `name="…"` in a text says, as numbers.
    fn numbers(text: &str, name: &str) -> Vec<f64> {
        let start = format!(" {name}=\"");
        text.split(&start)
            .skip(1)
            .map(|rest| rest.split(['"', ' ']).next().and_then(|n| n.parse().ok()).expect("a number"))
            .collect()
    }

    fn rects(svg: &str) -> Vec<[f64; 4]> {
        let lines = svg.lines().filter(|line| line.starts_with("<rect"));
        lines.map(|line| ["x", "y", "width", "height"].map(|name| numbers(line, name)[0])).collect()
    }

    fn tangled() -> Graph {
        let mut graph = Graph::new();
        for step in 0..24 {
            graph = graph.step(format!("part {step}/of a larger whole"));
            for to in [step * 7 % 24, step * 5 % 24 + 1, step + 1, step / 2] {
                graph = graph.next(format!("part {}/of a larger whole", to % 24));
            }
        }
        graph.done().fails().with_ends()
    }

    #[test]
    fn no_two_nodes_touch_and_all_are_in_the_picture() {
        let svg = tangled().svg();
        let (width, height) = (numbers(&svg, "width")[0], numbers(&svg, "height")[0]);
        let rects = rects(&svg);
        assert_eq!(rects.len(), 26);
        for (index, [x, y, w, h]) in rects.iter().enumerate() {
            let left = numbers(&svg, "viewBox")[0];
            assert!(*x >= left && x + w <= left + width, "{x} and {w} from {left} in {width}");
            assert!(*y >= 0.0 && y + h <= height - 2.0 * MARGIN + 1.0, "{y} and {h} in {height}");
            for [ox, oy, ow, oh] in &rects[..index] {
                assert!(x + w < *ox || ox + ow < *x || y + h < *oy || oy + oh < *y, "{index} touches");
            }
        }
    }

    #[test]
    fn the_path_taken_is_lit_and_the_step_it_is_at_is_marked() {
        let graph = Graph::new().step("a").next("b").next("c").step("b").done().step("c").done().with_ends();
        let marks = Marks {
            counts: [("b".to_owned(), 7)].into(),
            path: vec!["a".to_owned(), "b".to_owned()],
            here: Some("b".to_owned()),
        };
        let svg = graph.svg_with(&marks);
        assert_eq!(svg.matches("way taken").count(), 1, "{svg}");
        assert!(svg.contains("<g class=\"node act taken here\" data-step=\"b\">"), "{svg}");
        assert!(svg.contains("<g class=\"node act\" data-step=\"c\">"), "{svg}");
        assert!(svg.contains(">7</text>"), "{svg}");
    }

    #[test]
    fn names_are_inert_in_the_picture() {
        let hostile = "<script>alert(\"x\")</script>";
        let svg = Graph::new().step(hostile).case(hostile, hostile).svg();
        assert!(!svg.contains("<script"), "{svg}");
        assert!(svg.contains("&lt;script&gt;"), "{svg}");
    }

    #[test]
    fn a_graph_without_steps_and_one_step_that_leads_to_itself_are_drawn() {
        assert!(Graph::new().svg().ends_with("</svg>\n"));
        assert_eq!(rects(&Graph::new().step("round").next("round").svg()).len(), 1);
    }
}
