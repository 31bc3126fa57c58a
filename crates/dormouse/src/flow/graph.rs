//! A flow's graph, as data and as text for those who draw it.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::FlowState;
use super::machine::{FlowMachine, Task, To};

/// The steps of a machine and the ways between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    /// The steps, the first one first.
    pub nodes: Vec<Node>,
    /// The ways.
    pub edges: Vec<Edge>,
}

/// A step in a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The step's name.
    pub step: String,
    /// What it does.
    pub kind: NodeKind,
}

/// What a step in a graph does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// Runs code.
    Act,
    /// Undoes an act.
    Undo,
    /// Waits for a signal.
    Signal,
    /// Waits for the clock.
    Sleep,
    /// Chooses a way.
    Branch,
    /// Goes round.
    Repeat,
    /// Waits for children.
    Children,
    /// Waits for answers from outside.
    Dispatch,
    /// Fails.
    Fail,
    /// Ends a part, or the whole.
    End,
}

/// A way from one step to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// From this step.
    pub from: String,
    /// To this one.
    pub to: String,
    /// When it is taken, if not always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

/// The node that every way out leads to.
const DONE: &str = "done";

impl<S: FlowState, D: Send + Sync + 'static> FlowMachine<S, D> {
    /// Its steps and the ways between them, as they are described.
    pub fn graph(&self) -> Graph {
        let mut graph = Graph::default();
        for step in &self.steps {
            let kind = match &step.task {
                Task::Act { .. } => NodeKind::Act,
                Task::Undo(_) => NodeKind::Undo,
                Task::Wait { .. } => NodeKind::Signal,
                Task::Sleep { .. } => NodeKind::Sleep,
                Task::Branch(_) => NodeKind::Branch,
                Task::Repeat { .. } => NodeKind::Repeat,
                Task::Fan { .. } => NodeKind::Children,
                Task::Dispatch { .. } => NodeKind::Dispatch,
                Task::Settle { .. } => NodeKind::End,
                Task::Stop(_) => NodeKind::Fail,
            };
            graph.nodes.push(Node { step: step.path.clone(), kind });
            let mut way = |to: To, when: Option<&str>| {
                let to = match to {
                    To::Step(index) => self.steps[index].path.clone(),
                    To::Done => DONE.to_owned(),
                };
                graph.edges.push(Edge { from: step.path.clone(), to, when: when.map(str::to_owned) });
            };
            match &step.task {
                Task::Act { next, .. }
                | Task::Sleep { next, .. }
                | Task::Fan { next, .. }
                | Task::Dispatch { next, .. }
                | Task::Settle { next, .. } => way(*next, None),
                Task::Wait { wait, next } => {
                    way(*next, Some(&wait.signal));
                    if wait.on_timeout.is_some() {
                        way(*next, Some("timeout"));
                    }
                    if wait.when.is_some() {
                        way(*next, Some("skipped"));
                    }
                }
                Task::Branch(ways) => ways.iter().for_each(|(name, _, to)| way(*to, Some(name))),
                Task::Repeat { body, next, .. } => {
                    way(*body, Some("again"));
                    way(*next, Some("enough"));
                }
                Task::Undo(_) | Task::Stop(_) => {}
            }
        }
        if graph.edges.iter().any(|edge| edge.to == DONE) {
            graph.nodes.push(Node { step: DONE.to_owned(), kind: NodeKind::End });
        }
        let first = graph.nodes.remove(self.first);
        graph.nodes.insert(0, first);
        graph
    }
}

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
        for Edge { from, to, when } in &self.edges {
            let label = when.as_ref().map(|when| format!("|\"{}\"|", escaped(when))).unwrap_or_default();
            writeln!(text, "    n{} -->{label} n{}", self.index(from), self.index(to))
                .expect("a string takes all");
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
            writeln!(text, "    {step:?} [shape = {shape}];").expect("a string takes all");
        }
        for Edge { from, to, when } in &self.edges {
            let label = when.as_ref().map(|when| format!(" [label = {when:?}]")).unwrap_or_default();
            writeln!(text, "    {from:?} -> {to:?}{label};").expect("a string takes all");
        }
        text.push_str("}\n");
        text
    }

    fn index(&self, step: &str) -> usize {
        self.nodes.iter().position(|node| node.step == step).expect("every way leads to a step")
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}
