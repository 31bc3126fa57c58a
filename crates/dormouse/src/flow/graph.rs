//! A flow's graph, from its steps.

use super::FlowState;
use super::build::UNDONE;
use super::machine::{FlowMachine, Task, To};
use crate::graph::{DONE, Edge, FAILED, Graph, Node, NodeKind, On};

impl<S: FlowState, D: Send + Sync + 'static> FlowMachine<S, D> {
    /// Its steps and the ways between them, as they are described.
    pub fn graph(&self) -> Graph {
        let mut graph = Graph::default();
        for step in &*self.steps {
            graph.nodes.push(Node { step: step.path.clone(), kind: step.task.kind() });
            let mut way = |to: To, on: On| {
                let (from, to) = (step.path.clone(), self.name_of(to));
                graph.edges.push(Edge { from, to, on, by: None });
            };
            match &step.task {
                Task::Act { next, undoes, .. } => {
                    way(*next, On::Next);
                    if let Some(undo) = undoes.then(|| self.undo_of(&step.path)).flatten() {
                        way(undo, On::Undone);
                    }
                }
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
                    if wait.timeout.is_some() && wait.on_timeout.is_none() {
                        let (from, to) = (step.path.clone(), FAILED.to_owned());
                        graph.edges.push(Edge { from, to, on: On::Timeout, by: None });
                    }
                }
                Task::Branch(ways) => {
                    ways.iter().for_each(|(name, _, to)| way(*to, On::Case(name.clone())));
                }
                Task::Repeat { body, next, .. } => {
                    way(*body, On::Again);
                    way(*next, On::Enough);
                }
                Task::Undo { .. } => {
                    let saga = step.saga.as_deref().unwrap_or_default();
                    let undone = self.steps.iter().position(|step| step.path == format!("{saga}{UNDONE}"));
                    undone.into_iter().for_each(|undone| way(To::Step(undone), On::Undone));
                }
                Task::Undone | Task::Stop(_) => {}
            }
        }
        let first = graph.nodes.remove(self.first);
        graph.nodes.insert(0, first);
        graph.with_ends()
    }

    fn name_of(&self, to: To) -> String {
        match to {
            To::Step(index) => self.steps[index].path.clone(),
            To::Done => DONE.to_owned(),
        }
    }
}

impl<S, D> Task<S, D> {
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
