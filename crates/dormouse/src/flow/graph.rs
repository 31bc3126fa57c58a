//! A flow's graph, from its steps.

use std::collections::BTreeSet;

use super::FlowState;
use super::build::{UNDO, UNDONE};
use super::machine::{FlowMachine, Step, Task, To};
use crate::graph::{DONE, Edge, FAILED, Graph, Node, NodeKind, On};

impl<S: FlowState, D: Send + Sync + 'static> FlowMachine<S, D> {
    /// Its steps and the ways between them, as they are described.
    pub fn graph(&self) -> Graph {
        let mut graph = Graph::default();
        for step in &*self.steps {
            graph.nodes.push(Node { step: step.path.clone(), kind: step.task.kind() });
            let mut way = |to: To, on: On| {
                graph.edges.push(Edge::new(step.path.clone(), self.name_of(to), on));
            };
            match &step.task {
                Task::Act { next, .. } => way(*next, On::Next),
                Task::Sleep { next, .. } => way(*next, On::Later),
                Task::Fan { next, .. } => way(*next, On::Children),
                Task::Dispatch { next, .. } => way(*next, On::Answers),
                Task::Settle { next, .. } => way(*next, On::Next),
                Task::Wait { wait, next } => {
                    way(*next, On::Signal(wait.signal.clone()));
                    if wait.on_timeout.is_some() {
                        way(*next, On::Timeout);
                    }
                    if wait.when.is_some() {
                        way(*next, On::Skipped);
                    }
                    let (from, signal) = (&step.path, On::Signal(wait.signal.clone()));
                    let is_signal = |edge: &&mut Edge| edge.from == *from && edge.on == signal;
                    if let Some(edge) = graph.edges.iter_mut().find(is_signal) {
                        edge.by.clone_from(&wait.sender);
                    }
                }
                Task::Branch(ways) => {
                    ways.iter().for_each(|(name, _, to)| way(*to, On::Case(name.clone())));
                }
                Task::Repeat { body, next, .. } => {
                    way(*body, On::Again);
                    way(*next, On::Enough);
                }
                Task::Undo { .. } | Task::Undone | Task::Stop(_) => {}
            }
        }
        (0..self.steps.len()).for_each(|at| graph.edges.extend(self.ways_back(at)));
        let first = graph.nodes.remove(self.first);
        graph.nodes.insert(0, first);
        graph.with_ends()
    }

    /// The ways that are taken when something fails: to what a saga undoes first, from each undo to the next one, and in
    /// the end to the failure itself. Outside a saga every step may simply fail, which is not drawn.
    fn ways_back(&self, at: usize) -> Vec<Edge> {
        let step = &self.steps[at];
        let way = |to: String, on: &On| Edge::new(step.path.clone(), to, on.clone());
        let fails_late = matches!(&step.task, Task::Wait { wait, .. } if wait.timeout.is_some() && wait.on_timeout.is_none());
        if matches!(step.task, Task::Undone) {
            return vec![way(FAILED.to_owned(), &On::Failed)];
        }
        let Some(saga) = &step.saga else {
            return fails_late.then(|| way(FAILED.to_owned(), &On::Timeout)).into_iter().collect();
        };
        if matches!(step.task, Task::Undo { .. }) {
            let act = step.path.strip_suffix(UNDO).unwrap_or_default();
            let Some(act) = self.steps.iter().position(|step| step.path == act) else { return Vec::new() };
            let next = self.last_done(act, saga).into_iter().map(|act| match act {
                Some(act) => self.undo_name(act),
                None => format!("{saga}{UNDONE}"),
            });
            return next.map(|to| way(to, &On::Undone)).collect();
        }
        let mut reasons = Vec::new();
        match &step.task {
            Task::Branch(_) | Task::Sleep { .. } | Task::Settle { .. } => {}
            _ => reasons.push(On::Failed),
        }
        if fails_late {
            reasons.push(On::Timeout);
        }
        if step.undoes_on_cancel && reasons.is_empty() {
            reasons.push(On::Cancelled);
        }
        let last = self.last_done(at, saga);
        let ways = reasons.iter().flat_map(|on| {
            last.iter().map(move |act| match act {
                Some(act) => Some((self.undo_name(*act), on)),
                // With nothing to undo it simply fails.
                None => (*on == On::Timeout).then(|| (FAILED.to_owned(), on)),
            })
        });
        ways.flatten().map(|(to, on)| way(to, on)).collect()
    }

    /// The acts of a saga that may be the last one to be undone when a step begins: the nearest before it on each way that
    /// leads there. `None` stands for a way without one.
    fn last_done(&self, at: usize, saga: &str) -> BTreeSet<Option<usize>> {
        let (mut last, mut seen, mut next) = (BTreeSet::new(), BTreeSet::from([at]), vec![at]);
        while let Some(at) = next.pop() {
            let leads_here = |step: &Step<S, D>| step.task.targets().contains(&To::Step(at));
            let before = self.steps.iter().enumerate().filter(|(_, step)| leads_here(step));
            let within: Vec<_> = before.filter(|(_, step)| step.saga.as_deref() == Some(saga)).collect();
            if self.enters(at, saga) {
                last.insert(None);
            }
            for (before, step) in within {
                match &step.task {
                    Task::Act { undoes: true, .. } => drop(last.insert(Some(before))),
                    _ if seen.insert(before) => next.push(before),
                    _ => {}
                }
            }
        }
        last
    }

    /// Whether a step can be the first of its saga.
    fn enters(&self, at: usize, saga: &str) -> bool {
        let leads_here = |step: &&Step<S, D>| step.task.targets().contains(&To::Step(at));
        let is_outside = |step: &Step<S, D>| step.saga.as_deref() != Some(saga);
        at == self.first || self.steps.iter().filter(leads_here).any(is_outside)
    }

    fn undo_name(&self, act: usize) -> String {
        format!("{}{UNDO}", self.steps[act].path)
    }

    fn name_of(&self, to: To) -> String {
        match to {
            To::Step(index) => self.steps[index].path.clone(),
            To::Done => DONE.to_owned(),
        }
    }
}

impl<S, D> Task<S, D> {
    /// Every place it leads to while all goes well.
    fn targets(&self) -> Vec<To> {
        match self {
            Self::Act { next, .. }
            | Self::Wait { next, .. }
            | Self::Sleep { next, .. }
            | Self::Fan { next, .. }
            | Self::Dispatch { next, .. }
            | Self::Settle { next, .. } => vec![*next],
            Self::Repeat { body, next, .. } => vec![*body, *next],
            Self::Branch(ways) => ways.iter().map(|(_, _, to)| *to).collect(),
            Self::Undo { .. } | Self::Undone | Self::Stop(_) => Vec::new(),
        }
    }

    fn kind(&self) -> NodeKind {
        match self {
            Self::Act { .. } => NodeKind::Act,
            Self::Undo { .. } | Self::Undone => NodeKind::Undo,
            Self::Wait { .. } => NodeKind::Signal,
            Self::Sleep { .. } => NodeKind::Sleep,
            Self::Branch(_) => NodeKind::Branch,
            Self::Repeat { .. } => NodeKind::Repeat,
            Self::Fan { .. } => NodeKind::Children,
            Self::Dispatch { .. } => NodeKind::Dispatch,
            Self::Settle { .. } => NodeKind::End,
            Self::Stop(_) => NodeKind::Fail,
        }
    }
}
