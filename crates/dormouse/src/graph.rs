//! Graphs: the steps of a machine and the ways between them, as data, as Mermaid and DOT text, and as SVG.

mod layout;
mod svg;
mod text;

use serde::{Deserialize, Serialize};

pub use self::svg::Marks;

/// The steps of a machine and the ways between them.
///
/// A flow's is made from its description. A machine declares its own in [`Machine::graph`](crate::Machine::graph):
///
/// ```
/// use dormouse::graph::Graph;
///
/// let graph = Graph::new()
///     .step("Reserve").awaits("payment", "Paid").sent_by("the bank").or_timeout()
///     .step("Paid").case("in time", "Ship").after_signal("payment").fails().after_timeout()
///     .step("Ship").done();
/// assert!(graph.mermaid().contains("payment, timeout"));
/// ```
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
#[non_exhaustive]
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
    /// When it is taken.
    #[serde(flatten)]
    pub on: On,
    /// Who or what triggers it, if that is noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What must have woken the step for this way to be possible, if that is noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<After>,
}

impl Edge {
    pub(crate) fn new(from: impl Into<String>, to: impl Into<String>, on: On) -> Self {
        Self { from: from.into(), to: to.into(), on, by: None, after: None }
    }
}

/// What woke a step, as a condition of a way out of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum After {
    /// A signal of this name came.
    Signal(String),
    /// Its deadline passed, and no awaited signal came.
    Timeout,
}

/// When a way is taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "on", content = "name", rename_all = "snake_case")]
#[non_exhaustive]
pub enum On {
    /// When the step is done.
    Next,
    /// When this case holds.
    Case(String),
    /// When this signal comes.
    Signal(String),
    /// When nothing came in time.
    Timeout,
    /// When the wait is skipped.
    Skipped,
    /// For another round.
    Again,
    /// When it has repeated often enough.
    Enough,
    /// When a moment has come.
    Later,
    /// When the children have ended.
    Children,
    /// When the outside has answered.
    Answers,
    /// When an act of its saga is undone.
    Undone,
    /// When it fails.
    Failed,
    /// When the instance is cancelled.
    Cancelled,
}

/// The nodes that every way out leads to.
pub(crate) const DONE: &str = "done";
pub(crate) const FAILED: &str = "failed";

impl On {
    /// The label drawn on the way; `None` for a plain next step.
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Next => None,
            Self::Case(name) | Self::Signal(name) => Some(name),
            Self::Timeout => Some("timeout"),
            Self::Skipped => Some("skipped"),
            Self::Again => Some("again"),
            Self::Enough => Some("enough"),
            Self::Later => Some("later"),
            Self::Children => Some("children ended"),
            Self::Answers => Some("answered"),
            Self::Undone => Some("undone"),
            Self::Failed => Some("fails"),
            Self::Cancelled => Some("cancelled"),
        }
    }
}

/// Declaring the graph of a machine: `step` names a step, and the calls after it say what that step may return.
impl Graph {
    /// A graph without steps yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The step that the following ways lead from. The machine's first step comes first.
    #[must_use]
    pub fn step(mut self, step: impl Into<String>) -> Self {
        self.nodes.push(Node { step: step.into(), kind: NodeKind::Act });
        self
    }

    /// It may go on to another step.
    #[must_use]
    pub fn next(self, to: impl Into<String>) -> Self {
        self.way(to, On::Next)
    }

    /// It may go on to another step, in a case that has a name.
    #[must_use]
    pub fn case(self, name: impl Into<String>, to: impl Into<String>) -> Self {
        self.way(to, On::Case(name.into()))
    }

    /// It may await a signal, and go on at a step.
    #[must_use]
    pub fn awaits(self, signal: impl Into<String>, to: impl Into<String>) -> Self {
        self.way(to, On::Signal(signal.into()))
    }

    /// It may sleep, and go on at a step.
    #[must_use]
    pub fn sleeps(self, to: impl Into<String>) -> Self {
        self.way(to, On::Later)
    }

    /// It may spawn children, and go on at a step.
    #[must_use]
    pub fn spawns(self, to: impl Into<String>) -> Self {
        self.way(to, On::Children)
    }

    /// It may dispatch a unit, and go on at a step.
    #[must_use]
    pub fn dispatches(self, to: impl Into<String>) -> Self {
        self.way(to, On::Answers)
    }

    /// It may be done.
    #[must_use]
    pub fn done(self) -> Self {
        self.way(DONE, On::Next)
    }

    /// It may fail.
    #[must_use]
    pub fn fails(self) -> Self {
        self.way(FAILED, On::Failed)
    }

    /// The wait declared last has a deadline: when it passes, the same step follows.
    #[must_use]
    pub fn or_timeout(self) -> Self {
        match self.edges.last().map(|edge| edge.to.clone()) {
            Some(to) => self.way(to, On::Timeout),
            None => self,
        }
    }

    /// Notes who or what triggers the way declared last, such as who sends its signal. `check` then knows that it
    /// comes.
    #[must_use]
    pub fn sent_by(mut self, who: impl Into<String>) -> Self {
        if let Some(edge) = self.edges.last_mut() {
            edge.by = Some(who.into());
        }
        self
    }

    /// The way declared last is possible only after this signal came. `what-if` then leaves it out after a deadline.
    #[must_use]
    pub fn after_signal(self, signal: impl Into<String>) -> Self {
        self.after(After::Signal(signal.into()))
    }

    /// The way declared last is possible only after the deadline passed without an awaited signal. `what-if` then leaves
    /// it out after a signal.
    #[must_use]
    pub fn after_timeout(self) -> Self {
        self.after(After::Timeout)
    }

    fn after(mut self, after: After) -> Self {
        // A deadline belongs to the wait before it: both are one way.
        let is_deadline = self.edges.last().is_some_and(|edge| edge.on == On::Timeout);
        let count = if is_deadline { 2 } else { 1 };
        self.edges.iter_mut().rev().take(count).for_each(|edge| edge.after = Some(after.clone()));
        self
    }

    fn way(mut self, to: impl Into<String>, on: On) -> Self {
        if let Some(from) = self.nodes.last().map(|node| node.step.clone()) {
            self.edges.push(Edge::new(from, to, on));
        }
        self
    }

    /// Adds the ends that ways lead to.
    pub(crate) fn with_ends(mut self) -> Self {
        for (end, kind) in [(DONE, NodeKind::End), (FAILED, NodeKind::Fail)] {
            let leads_there = self.edges.iter().any(|edge| edge.to == end);
            if leads_there && !self.nodes.iter().any(|node| node.step == end) {
                self.nodes.push(Node { step: end.to_owned(), kind });
            }
        }
        self
    }

    /// Checks the declared graph against the machine's steps.
    pub(crate) fn check(&self, steps: &[String]) -> Result<(), String> {
        for (index, Node { step, .. }) in self.nodes.iter().enumerate() {
            if !steps.contains(step) {
                return Err(format!("the graph names step {step:?}, but the machine has no such step"));
            }
            if self.nodes[..index].iter().any(|node| node.step == *step) {
                return Err(format!("the graph describes step {step:?} twice"));
            }
        }
        if let Some(step) = steps.iter().find(|step| !self.nodes.iter().any(|node| node.step == **step)) {
            return Err(format!("the graph does not describe step {step:?}; add it"));
        }
        let ends = [DONE, FAILED];
        let lost = self.edges.iter().find(|e| !ends.contains(&e.to.as_str()) && !steps.contains(&e.to));
        match lost {
            Some(Edge { from, to, .. }) => {
                Err(format!("the graph leads from {from:?} to {to:?}, but the machine has no step {to:?}"))
            }
            None => Ok(()),
        }
    }

    fn index(&self, step: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.step == step)
    }

    /// The ways as they are drawn: one for each pair of steps, with all that is written on it.
    fn drawn(&self) -> Vec<Way> {
        let mut ways: Vec<Way> = Vec::new();
        for Edge { from, to, on, .. } in &self.edges {
            let (Some(from), Some(to)) = (self.index(from), self.index(to)) else { continue };
            let at = ways.iter().position(|way| (way.from, way.to) == (from, to)).unwrap_or_else(|| {
                ways.push(Way { from, to, labels: Vec::new(), quiet: true });
                ways.len() - 1
            });
            ways[at].labels.extend(on.label().map(str::to_owned));
            ways[at].quiet &= matches!(on, On::Undone | On::Failed | On::Cancelled);
        }
        ways
    }
}

/// A way as it is drawn, between nodes by their place in the list.
struct Way {
    from: usize,
    to: usize,
    labels: Vec<String>,
    /// Whether it is not the usual course of things.
    quiet: bool,
}

impl Way {
    fn label(&self) -> String {
        self.labels.join(", ")
    }
}
