//! Graphs as text for those who draw.

use std::fmt::Write;

use super::{Graph, Node, NodeKind};

impl Graph {
    /// As a Mermaid flowchart.
    pub fn mermaid(&self) -> String {
        let mut text = "flowchart TD\n".to_owned();
        for (index, Node { step, kind }) in self.nodes.iter().enumerate() {
            let (open, close) = match kind {
                NodeKind::Branch | NodeKind::Repeat => ("{\"", "\"}"),
                NodeKind::Signal | NodeKind::Sleep | NodeKind::Children | NodeKind::Dispatch => {
                    ("([\"", "\"])")
                }
                NodeKind::End | NodeKind::Fail => ("((\"", "\"))"),
                NodeKind::Act | NodeKind::Undo => ("[\"", "\"]"),
            };
            writeln!(text, "    n{index}{open}{}{close}", escaped(step)).expect("a string takes all");
        }
        for way in self.drawn() {
            let arrow = if way.quiet { "-.->" } else { "-->" };
            let label = match way.label() {
                empty if empty.is_empty() => empty,
                label => format!("|\"{}\"|", escaped(&label)),
            };
            writeln!(text, "    n{} {arrow}{label} n{}", way.from, way.to).expect("a string takes all");
        }
        text
    }

    /// As Graphviz's DOT.
    pub fn dot(&self) -> String {
        let mut text = "digraph {\n    rankdir = TB;\n".to_owned();
        for Node { step, kind } in &self.nodes {
            let shape = match kind {
                NodeKind::Branch | NodeKind::Repeat => "diamond",
                NodeKind::Signal | NodeKind::Sleep | NodeKind::Children | NodeKind::Dispatch => "oval",
                NodeKind::End | NodeKind::Fail => "doublecircle",
                NodeKind::Act | NodeKind::Undo => "box",
            };
            writeln!(text, "    {} [shape = {shape}];", quoted(step)).expect("a string takes all");
        }
        for way in self.drawn() {
            let (from, to) = (quoted(&self.nodes[way.from].step), quoted(&self.nodes[way.to].step));
            let label = match way.label() {
                empty if empty.is_empty() => empty,
                label => format!(" [label = {}]", quoted(&label)),
            };
            writeln!(text, "    {from} -> {to}{label};").expect("a string takes all");
        }
        text.push_str("}\n");
        text
    }
}

/// Text inside markup.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
