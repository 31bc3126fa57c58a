//! A typed machine seen as one over step names and JSON.

use std::time::Duration;

use super::steps::{decode_at, steps_of};
use super::{DynMachine, Fault, Machine, Running, Stated, StepError};
use crate::graph::Graph;
use crate::{Accepts, At, BoxError, Context, Error, History, Outline, Result, Takes};

pub(crate) struct Typed<M> {
    machine: M,
    steps: &'static [&'static str],
}

impl<M: Machine> Typed<M> {
    /// Wraps a machine, if its declaration is valid.
    pub(crate) fn new(machine: M) -> Result<Self> {
        let steps = steps_of::<M::State>()
            .map_err(|reason| Error::InvalidMachine { machine: M::NAME.to_owned(), reason })?;
        if let Some(graph) = M::graph() {
            let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
            graph
                .check(&steps)
                .map_err(|reason| Error::InvalidMachine { machine: M::NAME.to_owned(), reason })?;
        }
        Ok(Self { machine, steps })
    }
}

impl<M: Machine> DynMachine for Typed<M> {
    fn name(&self) -> &str {
        M::NAME
    }

    fn version(&self) -> u32 {
        M::VERSION
    }

    fn migrates_from(&self) -> u32 {
        M::MIGRATES_FROM
    }

    fn steps(&self) -> Vec<String> {
        self.steps.iter().map(ToString::to_string).collect()
    }

    fn queue(&self) -> &str {
        M::QUEUE
    }

    fn history(&self) -> Option<History> {
        M::HISTORY
    }

    fn accepts(&self) -> Vec<Accepts> {
        M::accepts()
    }

    fn accepts_others(&self) -> bool {
        M::accepts_others()
    }

    fn states(&self) -> Vec<Stated> {
        let outline = Outline::of::<M::State>();
        let stated = |step: &&str| {
            let outline = outline.state_at(step).filter(|outline| *outline != Outline::Any)?;
            Some(Stated { steps: vec![(*step).to_owned()], outline })
        };
        self.steps.iter().filter_map(stated).collect()
    }

    fn takes(&self) -> Vec<Takes> {
        M::takes()
    }

    fn indexes(&self) -> Vec<String> {
        M::indexes()
    }

    fn graph(&self) -> Option<Graph> {
        M::graph().map(Graph::with_ends)
    }

    fn step_timeout(&self) -> Option<Duration> {
        M::STEP_TIMEOUT
    }

    fn migrate(&self, from_version: u32, at: At) -> Result<At, BoxError> {
        self.machine.migrate(from_version, at)
    }

    fn check(&self, at: &At) -> Result<(), String> {
        decode_at::<M::State>(at).map(drop)
    }

    fn step<'a>(&'a self, at: &'a At, cx: &'a Context) -> Running<'a> {
        Box::pin(async move {
            let state = decode_at::<M::State>(at).map_err(Fault::Unreadable)?;
            self.machine
                .step(state, cx)
                .await
                .and_then(|outcome| Ok(cx.transition_of(outcome)?))
                .map_err(Fault::Failed)
        })
    }

    fn handle<'a>(&'a self, error: StepError, at: &'a At, cx: &'a Context) -> Running<'a> {
        Box::pin(async move {
            let state = decode_at::<M::State>(at).map_err(Fault::Unreadable)?;
            let outcome = self.machine.handle(error, state, cx).await;
            outcome.and_then(|outcome| Ok(cx.transition_of(outcome)?)).map_err(Fault::Failed)
        })
    }
}
