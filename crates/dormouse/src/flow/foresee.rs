//! What a part of a flow may do, without doing it: acts are replaced by their declared results; conditions and
//! receivers run.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Polling, Poll, Waker};

use super::FlowState;
use super::machine::{FlowMachine, Run, Task, To, is_answered};
use super::parts::{AskKind, Gives, WaitKind};
use crate::ahead::{Ahead, Foreseen, told};
use crate::{At, BoxError, Transition, Wake};

/// How many example states are made up if none was given.
const STATES_MAX: usize = 24;
/// How many rounds of a repeat are explored if its condition is unknown.
const ROUNDS_MAX: u32 = 2;

impl<S: FlowState, D: Send + Sync + 'static> FlowMachine<S, D> {
    /// Where instances may start: at the first part, with the states given as examples, or made up.
    pub(super) fn start_places(&self) -> Vec<At> {
        let states = if self.examples.is_empty() {
            crate::sample::samples::<S>(STATES_MAX)
        } else {
            self.examples.clone()
        };
        let at = |state| At { step: self.first().to_owned().into(), state };
        states.into_iter().map(at).collect()
    }

    pub(super) fn foreseen(&self, ahead: &Ahead<'_>) -> Vec<Foreseen> {
        let Ok((run, _)) = self.run(ahead.at) else { return Vec::new() };
        let foreseen = match &run.step.task {
            Task::Act { gives, .. } => self.act(ahead, gives),
            Task::Undo { .. } => vec![
                self.done("is done", ahead, ahead.is_known, |run, state| run.undone(&state)),
                self.done("cannot be done", ahead, ahead.is_known, |run, state| {
                    run.not_undone("as imagined".to_owned(), &state)
                }),
            ],
            Task::Wait { wait, next } => self.foresee_wait(ahead, wait, *next),
            Task::Branch(ways) if !ahead.is_known => {
                ways.iter().map(|(way, _, to)| self.way(ahead, way, *to)).collect()
            }
            Task::Repeat { body, next, .. } if !ahead.is_known => self.unknown_rounds(ahead, *body, *next),
            Task::Fan { fan, next } if ahead.cx.wake() == Some(Wake::Children) && fan.join.is_some() => {
                vec![self.join(ahead, *next), self.fails("`join` refuses the children's results", ahead)]
            }
            Task::Fan { next, .. } if ahead.cx.wake() == Some(Wake::Children) => {
                vec![self.join(ahead, *next), self.fails("a child is not done", ahead)]
            }
            Task::Dispatch { asking, next } if is_answered(ahead.cx) => self.answers(ahead, asking, *next),
            _ => vec![self.really(ahead)],
        };
        foreseen.into_iter().flatten().collect()
    }

    /// Its declared results, or any state if there are none; or it fails for good.
    fn act(&self, ahead: &Ahead<'_>, gives: &[Gives<S>]) -> Vec<Option<Foreseen>> {
        let is_known = ahead.is_known && !gives.is_empty();
        let unchanged: [Gives<S>; 1] = [Arc::new(|state| state)];
        let gives = if gives.is_empty() { &unchanged } else { gives };
        let done =
            |give: &Gives<S>| self.done("is done", ahead, is_known, |run, state| run.act_done(give(state)));
        gives.iter().map(done).chain([self.fails("fails for good", ahead)]).collect()
    }

    fn foresee_wait(&self, ahead: &Ahead<'_>, wait: &WaitKind<S, D>, next: To) -> Vec<Option<Foreseen>> {
        if ahead.cx.received_all().next().is_some() {
            return vec![self.really(ahead)];
        }
        if ahead.cx.timed_out() {
            return match (&wait.on_timeout, &wait.timeout_gives[..]) {
                (None, _) => vec![self.really(ahead)],
                (Some(_), []) => {
                    vec![self.done("takes the timeout", ahead, false, |run, state| run.next(next, state))]
                }
                (Some(_), gives) => gives
                    .iter()
                    .map(|give| {
                        self.done("takes the timeout", ahead, ahead.is_known, |run, state| {
                            run.next(next, give(state))
                        })
                    })
                    .collect(),
            };
        }
        if wait.when.is_some() && !ahead.is_known {
            let waits = self.done("waits", ahead, false, |run, state| run.park(wait, &state));
            return vec![waits, self.done("is skipped", ahead, false, |run, state| run.skip(next, state))];
        }
        vec![self.really(ahead)]
    }

    /// It is unknown whether it goes on: a few rounds are enough.
    fn unknown_rounds(&self, ahead: &Ahead<'_>, body: To, next: To) -> Vec<Option<Foreseen>> {
        let Ok((run, _)) = self.run(ahead.at) else { return Vec::new() };
        let round = run.trail.rounds.get(&run.step.path).copied().unwrap_or(0);
        let again = (round < ROUNDS_MAX).then(|| {
            self.done("repeats", ahead, false, |mut run, state| {
                run.trail.rounds.insert(run.step.path.clone(), round + 1);
                run.next(body, state)
            })
        });
        let enough = self.done("has repeated often enough", ahead, false, |mut run, state| {
            run.trail.rounds.remove(&run.step.path);
            run.next(next, state)
        });
        vec![again.flatten(), enough]
    }

    fn way(&self, ahead: &Ahead<'_>, way: &str, to: To) -> Option<Foreseen> {
        self.done(format!("goes the way {way:?}"), ahead, false, |mut run, state| {
            run.trail.chosen.insert(run.step.path.clone(), way.to_owned());
            run.next(to, state)
        })
    }

    /// The children's outputs are unknown, and so is the state after them.
    fn join(&self, ahead: &Ahead<'_>, next: To) -> Option<Foreseen> {
        self.done("takes what the children give", ahead, false, |mut run, state| {
            run.trail.left = None;
            run.next(next, state)
        })
    }

    /// Answers of its type, failures, and no answer at all.
    fn answers(&self, ahead: &Ahead<'_>, asking: &AskKind<S>, next: To) -> Vec<Option<Foreseen>> {
        let Ok((run, state)) = self.run(ahead.at) else { return Vec::new() };
        let items =
            run.here(&state).ok().and_then(|at| (asking.ask)(&state, at).ok()).map_or(1, |d| d.asks.len());
        let imagined = (asking.imagine)(items);
        imagined
            .into_iter()
            .map(|(what, hear)| {
                self.done(what, ahead, ahead.is_known, |run, state| run.next(next, hear(state)?))
            })
            .collect()
    }

    /// A part that only reads the state; it really runs.
    fn really(&self, ahead: &Ahead<'_>) -> Option<Foreseen> {
        let (run, state) = self.run(ahead.at).ok()?;
        let transition = match at_once(run.go(state, ahead.cx)) {
            Some(Ok(transition)) => transition,
            Some(Err(error)) => return self.failed_with(ahead, error.to_string()),
            None => return self.failed_with(ahead, "it did not answer at once".to_owned()),
        };
        Some(Foreseen::new(told(&transition), transition, ahead.is_known))
    }

    fn fails(&self, why: &str, ahead: &Ahead<'_>) -> Option<Foreseen> {
        self.failed_with(ahead, why.to_owned())
    }

    fn failed_with(&self, ahead: &Ahead<'_>, why: String) -> Option<Foreseen> {
        let (run, state) = self.run(ahead.at).ok()?;
        let transition = run.failed(why.clone(), &state).ok()?;
        let what = match &transition {
            Transition::Next { at, .. } => format!("{why}, goes on to {}", at.step),
            _ => why,
        };
        Some(Foreseen::new(what, transition, ahead.is_known))
    }

    /// A part that would do something.
    fn done(
        &self,
        what: impl Into<String>,
        ahead: &Ahead<'_>,
        is_known: bool,
        go: impl FnOnce(Run<'_, S, D>, S) -> Result<Transition, BoxError>,
    ) -> Option<Foreseen> {
        let (run, state) = self.run(ahead.at).ok()?;
        match go(run, state) {
            Ok(transition) => {
                let after = told(&transition);
                Some(Foreseen::new(format!("{}, {after}", what.into()), transition, is_known))
            }
            Err(error) => self.failed_with(ahead, error.to_string()),
        }
    }
}

/// The result of code that awaits nothing.
fn at_once<T>(code: impl Future<Output = T>) -> Option<T> {
    match pin!(code).poll(&mut Polling::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}
