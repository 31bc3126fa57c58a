//! Undoing what a saga did, when a part of it failed for good.

use super::FlowState;
use super::build::{UNDO, UNDONE};
use super::machine::{Run, is_within};
use super::trail::{self, Failed};
use crate::{At, BoxError, Transition};

impl<S: FlowState, D: Send + Sync + 'static> Run<'_, S, D> {
    /// What follows a part that failed for good: in a saga, its acts are undone first.
    pub(super) fn failed(mut self, error: String, state: &S) -> Result<Transition, BoxError> {
        let Some(saga) = &self.step.saga else { return Ok(Transition::Fail { error }) };
        let at = self.step.path.clone();
        self.trail.left = None;
        self.trail.failed = Some(Failed { at, error, saga: saga.clone(), not_undone: Vec::new() });
        match self.to_undo() {
            Some(step) => Ok(Transition::Next {
                at: At { step: step.into(), state: trail::write(state, &self.trail)? },
                ahead: true,
            }),
            None => Ok(self.fail()),
        }
    }

    /// Goes on to the next undo, or to where the saga fails, so that the last undo's result is kept.
    pub(super) fn undone(mut self, state: &S) -> Result<Transition, BoxError> {
        self.trail.undo.pop();
        let failed = self.trail.failed.as_ref().expect("something failed");
        let step = self.to_undo().unwrap_or_else(|| format!("{}{UNDONE}", failed.saga));
        Ok(Transition::Next {
            at: At { step: step.into(), state: trail::write(state, &self.trail)? },
            ahead: true,
        })
    }

    /// Goes on although this act could not be undone: the others are still undone.
    pub(super) fn not_undone(mut self, error: String, state: &S) -> Result<Transition, BoxError> {
        let act = self.step.path.trim_end_matches(UNDO).to_owned();
        self.trail.failed.as_mut().expect("something failed").not_undone.push((act, error));
        self.undone(state)
    }

    /// The step that undoes the last act of the failed saga; none when nothing is left.
    fn to_undo(&self) -> Option<String> {
        let failed = self.trail.failed.as_ref()?;
        let last = self.trail.undo.last().filter(|path| is_within(path, &failed.saga))?;
        Some(format!("{last}{UNDO}"))
    }

    /// Fails with the saga's reason, and names the acts that could not be undone.
    pub(super) fn fail(&self) -> Transition {
        let Some(failed) = &self.trail.failed else { return Transition::Fail { error: String::new() } };
        let mut error = format!("{}: {}", failed.at, failed.error);
        for (act, reason) in &failed.not_undone {
            error.push_str(&format!("; {act} could not be undone: {reason}"));
        }
        Transition::Fail { error }
    }
}
