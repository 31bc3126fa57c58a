//! Outcomes: what a step returns, committed atomically.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::limits::{Limits, check_name};
use crate::machine::encode_at;
use crate::{At, Dispatch, Error, Json, Machine, NewInstance, Result, Signal, Unit, When};

/// What a step returns.
pub struct Outcome<M> {
    transition: Result<Transition>,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Outcome<M> {
    /// Goes on to another step, runnable at once; the signals this step received are consumed.
    pub fn next(at: M::State) -> Self {
        Self::to(&at, |at| Transition::Next { at })
    }

    /// Runs the same step again after a delay, its fields perhaps changed; it keeps its inputs.
    pub fn replay(at: M::State, delay: Duration) -> Self {
        Self::to(&at, |at| Transition::Replay { at, delay, error: None })
    }

    /// Like [`Outcome::next`], but not before a moment or for a duration.
    pub fn sleep(until: impl Into<When>, at: M::State) -> Self {
        let until = until.into();
        Self::to(&at, |at| Transition::Sleep { at, until })
    }

    /// Parks until this signal is there; consumes nothing.
    pub fn await_signal<T>(signal: Signal<T>, at: M::State) -> Self {
        Self::await_signals([signal], at)
    }

    /// Parks until any of these signals is there that this step was not handed; consumes nothing.
    pub fn await_signals<N: Into<String>>(names: impl IntoIterator<Item = N>, at: M::State) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        Self::to(&at, |at| Transition::Await { at, names, timeout: None })
    }

    /// Inserts children and parks until all of them have ended.
    pub fn spawn(children: impl IntoIterator<Item = NewInstance>, at: M::State) -> Self {
        let children = children.into_iter().collect();
        Self::to(&at, |at| {
            Transition::Spawn(Spawn {
                at,
                children,
                timeout: None,
                quorum: None,
                on_cancel: Children::Cancel,
            })
        })
    }

    /// Opens an await unit and parks until it is closed: answered, timed out or failed. Sending starts after the
    /// commit, from what was committed.
    pub fn dispatch<R: serde::Serialize>(unit: Unit<R>, at: M::State) -> Self {
        Self::of(encode_at(&at).and_then(|at| unit.dispatch(at)).map(Transition::Dispatch))
    }

    /// Ends `done`.
    pub fn done(output: M::Output) -> Self {
        Self::of(Json::encode("output", &output).map(|output| Transition::Done { output }))
    }

    /// Ends `failed`.
    pub fn stop(reason: impl fmt::Display) -> Self {
        Self::of(Ok(Transition::Fail { error: reason.to_string() }))
    }

    /// Sets the deadline of an await or of a barrier: a wake, not a failure.
    #[must_use]
    pub fn timeout(self, after: impl Into<When>) -> Self {
        let after = after.into();
        self.change("timeout", "await_signal, await_signals and spawn", |transition| match transition {
            Transition::Await { timeout, .. } | Transition::Spawn(Spawn { timeout, .. }) => {
                *timeout = Some(after);
                true
            }
            _ => false,
        })
    }

    /// Wakes the parent once this many of the children have ended.
    #[must_use]
    pub fn quorum(self, ended: u32) -> Self {
        self.change("quorum", "spawn", |transition| match transition {
            Transition::Spawn(Spawn { quorum, .. }) => {
                *quorum = Some(ended);
                true
            }
            _ => false,
        })
    }

    /// Says what cancelling the parent does to these children while they live.
    #[must_use]
    pub fn on_cancel(self, children: Children) -> Self {
        self.change("on_cancel", "spawn", |transition| match transition {
            Transition::Spawn(Spawn { on_cancel, .. }) => {
                *on_cancel = children;
                true
            }
            _ => false,
        })
    }

    /// Notes the error that a replay answers; it is shown as the instance's `last_error`.
    #[must_use]
    pub fn because(self, reason: impl fmt::Display) -> Self {
        self.change("because", "replay", |transition| match transition {
            Transition::Replay { error, .. } => {
                *error = Some(reason.to_string());
                true
            }
            _ => false,
        })
    }

    pub(crate) fn into_transition(self) -> Result<Transition> {
        self.transition
    }

    fn of(transition: Result<Transition>) -> Self {
        Self { transition, machine: PhantomData }
    }

    fn to(at: &M::State, transition: impl FnOnce(At) -> Transition) -> Self {
        Self::of(encode_at(at).map(transition))
    }

    fn change(mut self, option: &str, fits: &str, set: impl FnOnce(&mut Transition) -> bool) -> Self {
        if let Ok(transition) = &mut self.transition
            && !set(transition)
        {
            self.transition = Err(Error::InvalidOutcome(format!("`{option}` only fits {fits}")));
        }
        self
    }
}

impl<M> fmt::Debug for Outcome<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outcome({:?})", self.transition)
    }
}

/// What cancelling a parent does to its live children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// They are cancelled too.
    Cancel,
    /// They run on.
    Keep,
}

/// An outcome over step names and JSON: what the engine commits.
#[derive(Clone, Debug)]
pub enum Transition {
    /// See [`Outcome::next`].
    Next {
        /// Where to.
        at: At,
    },
    /// See [`Outcome::replay`].
    Replay {
        /// The same step, perhaps with other fields.
        at: At,
        /// How long to wait.
        delay: Duration,
        /// The error it answers.
        error: Option<String>,
    },
    /// See [`Outcome::sleep`].
    Sleep {
        /// Where to.
        at: At,
        /// Not before this.
        until: When,
    },
    /// See [`Outcome::await_signals`].
    Await {
        /// Where to, when woken.
        at: At,
        /// The names, any of which wakes it.
        names: Vec<String>,
        /// The deadline.
        timeout: Option<When>,
    },
    /// See [`Outcome::spawn`].
    Spawn(Spawn),
    /// See [`Outcome::dispatch`].
    Dispatch(Dispatch),
    /// See [`Outcome::done`].
    Done {
        /// The output.
        output: Json,
    },
    /// See [`Outcome::stop`].
    Fail {
        /// The reason.
        error: String,
    },
}

/// Children and the barrier on them.
#[derive(Clone, Debug)]
pub struct Spawn {
    /// Where to, when the barrier is released.
    pub at: At,
    /// The children.
    pub children: Vec<NewInstance>,
    /// The barrier's deadline.
    pub timeout: Option<When>,
    /// How many ends release the barrier; `None` is all.
    pub quorum: Option<u32>,
    /// What cancelling the parent does to them.
    pub on_cancel: Children,
}

impl Transition {
    /// Where a `next` leads.
    pub(crate) fn next(&self) -> Option<&At> {
        match self {
            Self::Next { at } => Some(at),
            _ => None,
        }
    }

    /// The place it leads to, unless it ends.
    pub fn at(&self) -> Option<&At> {
        match self {
            Self::Next { at }
            | Self::Replay { at, .. }
            | Self::Sleep { at, .. }
            | Self::Await { at, .. }
            | Self::Spawn(Spawn { at, .. })
            | Self::Dispatch(Dispatch { at, .. }) => Some(at),
            Self::Done { .. } | Self::Fail { .. } => None,
        }
    }

    /// Refuses what could not be stored or could never wake.
    pub(crate) fn check(&self, limits: &Limits) -> Result<()> {
        if let Some(at) = self.at() {
            check_name("step name", &at.step)?;
            limits.check_document("state", &at.state)?;
        }
        match self {
            Self::Await { names, .. } if names.is_empty() => {
                Err(Error::InvalidOutcome("it awaits no signal at all; name at least one".to_owned()))
            }
            Self::Await { names, .. } => names.iter().try_for_each(|name| check_name("signal name", name)),
            Self::Spawn(Spawn { children, .. }) if children.len() > limits.children_max => {
                Err(Error::InvalidOutcome(format!(
                    "it spawns {} children and the limit is {}",
                    children.len(),
                    limits.children_max
                )))
            }
            Self::Spawn(Spawn { quorum: Some(0), .. }) => {
                Err(Error::InvalidOutcome("a quorum of 0 waits for nothing; use `next`".to_owned()))
            }
            Self::Spawn(Spawn { children, .. }) => children.iter().try_for_each(|child| child.check(limits)),
            Self::Dispatch(dispatch) => dispatch.check(limits),
            Self::Done { output } => limits.check_document("output", output),
            Self::Next { .. } | Self::Replay { .. } | Self::Sleep { .. } | Self::Fail { .. } => Ok(()),
        }
    }
}
