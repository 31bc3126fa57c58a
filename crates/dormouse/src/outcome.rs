//! Outcomes: what a step returns, committed atomically.

mod awaited;
mod round;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::awaited::Await;
pub use self::round::Round;
use crate::limits::{Limits, check_name};
use crate::machine::encode_at;
use crate::{
    At, Dispatch, Error, Json, LaneChange, Machine, Mail, NewInstance, NewSignal, Result, Signal, Target,
    Unit, When,
};

/// What a step returns.
///
/// Any outcome may carry mail to other instances: [`Outcome::start`], [`Outcome::signal`], [`Outcome::cancel`]. One that
/// goes on may change its instance's lane: [`Outcome::lane`]. Other options belong to the thing that is waited for (an [`Await`], a [`Round`] of children, a
/// [`Unit`]), so that an option that does not fit does not compile:
///
/// ```compile_fail,E0599
/// # use std::time::Duration;
/// # use dormouse::prelude::*;
/// # fn ends<M: Machine<Output = u32>>() -> Outcome<M> {
/// Outcome::done(1).timeout(Duration::from_secs(1))
/// # }
/// ```
///
/// ```compile_fail,E0599
/// # use dormouse::prelude::*;
/// # const PAID: Signal<u32> = Signal::named("paid");
/// # fn waits<M: Machine>(at: M::State) -> Outcome<M> {
/// Outcome::await_signal(PAID.quorum(2), at)
/// # }
/// ```
///
/// ```compile_fail,E0599
/// # use dormouse::prelude::*;
/// # fn asks<M: Machine>(at: M::State) -> Outcome<M> {
/// Outcome::dispatch(Unit::one("a question").quorum(1), at)
/// # }
/// ```
#[must_use = "an outcome does nothing unless a step returns it"]
pub struct Outcome<M> {
    transition: Result<Transition>,
    lane: Option<LaneChange>,
    mail: Vec<Mail>,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Outcome<M> {
    /// Goes on to another step, runnable at once; the signals this step received are consumed. The worker may run on with
    /// it: see [`Outcome::requeue`].
    pub fn next(at: M::State) -> Self {
        Self::to(&at, |at| Transition::Next { at, ahead: true })
    }

    /// Like [`Outcome::next`], but gives the row back instead of running ahead: it goes to the end of its queue, and
    /// any free worker claims it. Use it before a step that should not follow in the same claim, such as a long one
    /// before which others should get a turn.
    pub fn requeue(at: M::State) -> Self {
        Self::to(&at, |at| Transition::Next { at, ahead: false })
    }

    /// Runs the same step again after a delay, its fields perhaps changed; it keeps its inputs.
    pub fn replay(at: M::State, delay: Duration) -> Self {
        Self::to(&at, |at| Transition::Replay { at, delay, error: None })
    }

    /// Like [`Outcome::replay`], and records the error that caused it in the instance's `last_error`.
    pub fn replay_because(reason: impl fmt::Display, at: M::State, delay: Duration) -> Self {
        let error = Some(reason.to_string());
        Self::to(&at, |at| Transition::Replay { at, delay, error })
    }

    /// Like [`Outcome::next`], but not before a moment or for a duration.
    pub fn sleep(until: impl Into<When>, at: M::State) -> Self {
        let until = until.into();
        Self::to(&at, |at| Transition::Sleep { at, until })
    }

    /// Parks until this signal, or any of these, arrives; a signal that the step has already received does not wake it.
    /// Consumes nothing.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use dormouse::prelude::*;
    /// const PAID: Signal<u64> = Signal::named("paid");
    /// const WITHDRAWN: Signal<String> = Signal::named("withdrawn");
    /// # fn arms<M: Machine>(at: fn() -> M::State) -> [Outcome<M>; 3] {
    /// # [
    /// Outcome::await_signal(PAID, at()),
    /// Outcome::await_signal(PAID.timeout(Duration::from_secs(3600)), at()),
    /// Outcome::await_signal(PAID.or(WITHDRAWN), at()),
    /// # ]
    /// # }
    /// ```
    pub fn await_signal(awaited: impl Into<Await>, at: M::State) -> Self {
        let Await { names, timeout } = awaited.into();
        Self::to(&at, |at| Transition::Await { at, names, timeout })
    }

    /// Inserts children and parks until all of them have ended, or until their [`Round`] lets it go on.
    pub fn spawn(children: impl Into<Round>, at: M::State) -> Self {
        let round = children.into();
        Self::to(&at, |at| Transition::Spawn(round.spawn(at)))
    }

    /// Opens an await unit and parks until it is closed: answered, timed out or failed. Sending starts after the
    /// commit, from what was committed.
    pub fn dispatch<R: serde::Serialize, K>(unit: Unit<R, K>, at: M::State) -> Self {
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

    /// Goes to another [lane](crate::NewInstance::lane), at the end of its line, if the outcome goes on. The instance lets go
    /// of its place in the lane it is in, and a `next` gives its claim back. The lane it is in already changes nothing.
    ///
    /// ```
    /// # use dormouse::prelude::*;
    /// # fn calls<M: Machine>(at: M::State) -> Outcome<M> {
    /// Outcome::next(at).lane("partner/acme")
    /// # }
    /// ```
    pub fn lane(self, lane: impl Into<String>) -> Self {
        let lane = lane.into();
        let checked = check_name("lane", &lane);
        self.change_lane(checked.map(|()| LaneChange::To(lane)))
    }

    /// Leaves its lane, if the outcome goes on, so that the next step waits for no place.
    pub fn no_lane(self) -> Self {
        self.change_lane(Ok(LaneChange::Leave))
    }

    fn change_lane(self, change: Result<LaneChange>) -> Self {
        let ends =
            || Error::InvalidOutcome("it ends, and so leaves its lane anyway: name no lane".to_owned());
        let transition = self.transition.and_then(|transition| match transition.at() {
            Some(_) => Ok(transition),
            None => Err(ends()),
        });
        match (transition, change) {
            (Ok(transition), Ok(lane)) => Self { transition: Ok(transition), lane: Some(lane), ..self },
            (Err(error), _) | (_, Err(error)) => Self { transition: Err(error), ..self },
        }
    }

    /// Also starts a detached instance, in this instance's namespace. Nobody waits for it; for children, use
    /// [`Outcome::spawn`].
    ///
    /// This and the other pieces of mail are committed with the outcome and delivered right after it, each exactly once.
    /// A crash shows all of it or nothing. Mail that cannot be delivered, such as a start whose key is taken, is an
    /// event `mail.undelivered` in this instance's history.
    ///
    /// ```
    /// # use dormouse::prelude::*;
    /// const PAID: Signal<u64> = Signal::named("paid");
    /// # fn sends<M: Machine, Shipping: Machine>(at: M::State, ship: Shipping::State) -> Outcome<M> {
    /// Outcome::next(at)
    ///     .start(NewInstance::of::<Shipping>(ship).key("shipping:42"))
    ///     .signal("order:42", PAID, 100)
    ///     .cancel("reminder:42")
    /// # }
    /// ```
    pub fn start(self, new: NewInstance) -> Self {
        self.mail(new)
    }

    /// Also signals another instance, by id or by key. See [`Outcome::start`] for how mail is delivered.
    pub fn signal<T: Serialize>(self, to: impl Into<Target>, signal: Signal<T>, payload: T) -> Self {
        match NewSignal::of(signal, &payload) {
            Ok(signal) => self.mail(Mail::signal_raw(to, signal)),
            Err(error) => Self { transition: self.transition.and(Err(error)), ..self },
        }
    }

    /// Also cancels another instance, by id or by key. One that has ended stays as it is. See [`Outcome::start`] for how
    /// mail is delivered.
    pub fn cancel(self, to: impl Into<Target>) -> Self {
        self.mail(Mail::cancel(to))
    }

    /// Also sends a piece of mail. See [`Outcome::start`] for how mail is delivered.
    pub fn mail(mut self, mail: impl Into<Mail>) -> Self {
        self.mail.push(mail.into());
        self
    }

    pub(crate) fn into_parts(self) -> Result<(Transition, Option<LaneChange>, Vec<Mail>)> {
        Ok((self.transition?, self.lane, self.mail))
    }

    fn of(transition: Result<Transition>) -> Self {
        Self { transition, lane: None, mail: Vec::new(), machine: PhantomData }
    }

    fn to(at: &M::State, transition: impl FnOnce(At) -> Transition) -> Self {
        Self::of(encode_at(at).map(transition))
    }
}

impl<M> fmt::Debug for Outcome<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mail[..] {
            [] => write!(f, "Outcome({:?})", self.transition),
            mail => write!(f, "Outcome({:?}, with {mail:?})", self.transition),
        }
    }
}

/// What happens to live children when their parent is cancelled, or when the barrier on them is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Children {
    /// They are cancelled.
    Cancel,
    /// They run on.
    Keep,
}

/// An outcome over step names and JSON: what the engine commits.
///
/// In JSON it is an object of one field, named after the outcome: `{"sleep": {"at": {"step": "Ring", "state": null},
/// "until": {"in": {"secs": 60, "nanos": 0}}}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Transition {
    /// See [`Outcome::next`].
    Next {
        /// Where to.
        at: At,
        /// Whether the worker may run on with it, without giving the row back first.
        ahead: bool,
    },
    /// See [`Outcome::replay`].
    Replay {
        /// The same step, perhaps with other fields.
        at: At,
        /// How long to wait.
        delay: Duration,
        /// The error that caused it.
        error: Option<String>,
    },
    /// See [`Outcome::sleep`].
    Sleep {
        /// Where to.
        at: At,
        /// Not before this.
        until: When,
    },
    /// See [`Outcome::await_signal`].
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// Where to, when the barrier is released.
    pub at: At,
    /// The children.
    pub children: Vec<NewInstance>,
    /// The barrier's deadline.
    pub timeout: Option<When>,
    /// How many ends release the barrier, and which of them count; `None` is all, however they end.
    pub quorum: Option<Quorum>,
    /// Whether the first child that fails or is cancelled releases the barrier.
    pub fail_fast: bool,
    /// What happens to those that still live when the barrier is released.
    pub on_release: Children,
    /// What cancelling the parent does to them.
    pub on_cancel: Children,
}

/// How many ends of children release a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quorum {
    /// This many that are `done`, or the failure after which that cannot be reached.
    Done(u32),
    /// This many, however they end.
    Ended(u32),
}

impl Quorum {
    /// How many.
    pub fn count(self) -> u32 {
        match self {
            Self::Done(count) | Self::Ended(count) => count,
        }
    }
}

/// What a barrier on children still waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Barrier {
    /// Ends that count and are still to come.
    pub(crate) ends: u32,
    /// How many ends other than `done` it tolerates, if only `done` counts; one more releases it. `None`: every end
    /// counts.
    pub(crate) spare: Option<u32>,
}

impl Spawn {
    /// The barrier on those of the children that were inserted.
    pub(crate) fn barrier(&self, inserted: u32) -> Barrier {
        let ends = self.quorum.map_or(inserted, |quorum| quorum.count().min(inserted));
        let spare = match (self.fail_fast, self.quorum) {
            (true, _) => Some(0),
            (false, Some(Quorum::Done(_))) => Some(inserted - ends),
            (false, Some(Quorum::Ended(_)) | None) => None,
        };
        Barrier { ends, spare }
    }
}

impl Transition {
    /// Where a `next` leads.
    pub(crate) fn next(&self) -> Option<&At> {
        match self {
            Self::Next { at, .. } => Some(at),
            _ => None,
        }
    }

    /// About how many bytes its documents take.
    pub(crate) fn bytes(&self) -> usize {
        let documents = match self {
            Self::Spawn(Spawn { children, .. }) => {
                let of = |child: &NewInstance| {
                    let signals = child.signals.iter().map(|signal| signal.payload.as_str().len());
                    child.at.state.as_str().len() + signals.sum::<usize>()
                };
                children.iter().map(of).sum()
            }
            Self::Dispatch(Dispatch { asks, .. }) => asks.iter().map(|ask| ask.request.as_str().len()).sum(),
            Self::Done { output } => output.as_str().len(),
            Self::Fail { error } | Self::Replay { error: Some(error), .. } => error.len(),
            Self::Next { .. } | Self::Replay { .. } | Self::Sleep { .. } | Self::Await { .. } => 0,
        };
        documents + self.at().map_or(0, |at| at.state.as_str().len())
    }

    /// The step and state it leads to, unless it ends.
    pub fn at(&self) -> Option<&At> {
        match self {
            Self::Next { at, .. }
            | Self::Replay { at, .. }
            | Self::Sleep { at, .. }
            | Self::Await { at, .. }
            | Self::Spawn(Spawn { at, .. })
            | Self::Dispatch(Dispatch { at, .. }) => Some(at),
            Self::Done { .. } | Self::Fail { .. } => None,
        }
    }

    /// Refuses an outcome that could not be stored or could never wake.
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
            Self::Spawn(Spawn { quorum: Some(Quorum::Done(0) | Quorum::Ended(0)), .. }) => {
                Err(Error::InvalidOutcome("a quorum of 0 waits for nothing; use `next`".to_owned()))
            }
            Self::Spawn(Spawn { children, .. }) => children.iter().try_for_each(|child| child.check(limits)),
            Self::Dispatch(dispatch) => dispatch.check(limits),
            Self::Done { output } => limits.check_document("output", output),
            Self::Next { .. } | Self::Replay { .. } | Self::Sleep { .. } | Self::Fail { .. } => Ok(()),
        }
    }
}
