//! Machines: a definition with a name, a version, steps and the code that runs them.

mod declaration;
mod job;
mod registry;
mod steps;
mod typed;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::declaration::{Accepted, Declaration, Stated, Taken};
pub use self::job::{Job, JobMachine, JobState};
pub use self::registry::Registry;
pub(crate) use self::steps::{decode_at, encode_at};
pub(crate) use self::typed::Typed;
use crate::ahead::{Ahead, Foreseen, by_graph};
use crate::graph::Graph;
use crate::{Accepts, At, BoxError, Context, History, Json, Outcome, Retry, Takes, Transition};

/// What a step returns.
pub type StepResult<M> = Result<Outcome<M>, BoxError>;

/// A state machine: its states are an enum whose variant is the step and whose fields are what that
/// step needs; dependencies live in `self`.
///
/// ```
/// use dormouse::prelude::*;
///
/// struct Greeter;
///
/// #[derive(Serialize, Deserialize)]
/// enum Greeting {
///     Hello { name: String },
///     Goodbye { name: String, greeted: u32 },
/// }
///
/// impl Machine for Greeter {
///     const NAME: &'static str = "greeter";
///     type State = Greeting;
///     type Output = u32;
///
///     async fn step(&self, state: Greeting, _cx: &Context) -> StepResult<Self> {
///         Ok(match state {
///             Greeting::Hello { name } => Outcome::next(Greeting::Goodbye { name, greeted: 1 }),
///             Greeting::Goodbye { greeted, .. } => Outcome::done(greeted),
///         })
///     }
/// }
/// ```
pub trait Machine: Sized + Send + Sync + 'static {
    /// The machine's name, the same in every process that knows it.
    const NAME: &'static str;
    /// The version of its code. Instances keep the version they started with.
    const VERSION: u32 = 1;
    /// The oldest version whose instances this code takes over through [`Machine::migrate`]. It is at most 1,000 behind
    /// `VERSION`, because every claim names each version.
    const MIGRATES_FROM: u32 = Self::VERSION;
    /// The queue in which its instances wait by default.
    const QUEUE: &'static str = "default";
    /// Whether its transitions are recorded; `None` is the engine's choice.
    const HISTORY: Option<History> = None;
    /// How long one run of a step may take; `None` is forever.
    const STEP_TIMEOUT: Option<Duration> = None;

    /// Its steps and their states: an externally tagged enum, serde's default.
    type State: Serialize + DeserializeOwned + Send + 'static;
    /// The output of an instance that is done.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// Runs one step. It may run again after a crash, so everything that it does outside must be safe to repeat.
    fn step(&self, state: Self::State, cx: &Context) -> impl Future<Output = StepResult<Self>> + Send;

    /// Decides what follows a failed step, given the state as last committed. Implement it to compensate, or to retry
    /// only some errors.
    ///
    /// The default follows [`Machine::retry`], unless the error is [`Final`]. If it fails itself, the instance is
    /// `failed`.
    fn handle(
        &self,
        error: StepError,
        state: Self::State,
        cx: &Context,
    ) -> impl Future<Output = StepResult<Self>> + Send {
        let outcome = match self.retry().delay_after(&error, cx.attempt()) {
            Some(delay) => Outcome::replay_because(&error, state, delay),
            None => Outcome::stop(error),
        };
        std::future::ready(Ok(outcome))
    }

    /// How the default [`Machine::handle`] retries; by default never.
    fn retry(&self) -> Retry {
        Retry::never()
    }

    /// The outputs of units that are checked before they are admitted, by the step that reads them.
    fn takes() -> Vec<Takes> {
        Vec::new()
    }

    /// The signals that it accepts. Their payloads are checked before they are stored. If this names any signals, all
    /// others are refused, so that a misspelt name is an error, unless the instance awaits it or
    /// [`Machine::accepts_others`] is true.
    fn accepts() -> Vec<Accepts> {
        Vec::new()
    }

    /// Whether it accepts signals that [`Machine::accepts`] does not name. By default it does if that names none.
    fn accepts_others() -> bool {
        Self::accepts().is_empty()
    }

    /// The fields of its states that instances are found by, such as `total` or `address.city`: at most 16. A search by one
    /// of them is led by an index, which each commit that changes the field keeps. Numbers, flags, and the first 200
    /// characters of texts are in it.
    fn indexes() -> Vec<String> {
        Vec::new()
    }

    /// Its steps and the ways between them, for pictures, `dormouse check` and `what-if`. Declaring them is optional.
    fn graph() -> Option<Graph> {
        None
    }

    /// Lifts an instance of an older version to this one.
    fn migrate(&self, from_version: u32, at: At) -> Result<At, BoxError> {
        let _ = at;
        Err(format!("machine {} does not migrate from version {from_version}", Self::NAME).into())
    }
}

/// Why a step did not return an outcome.
#[derive(Debug)]
#[non_exhaustive]
pub enum StepError {
    /// It returned an error.
    Error(BoxError),
    /// It panicked.
    Panic(String),
    /// It ran longer than its machine allows.
    TimedOut(Duration),
}

impl StepError {
    /// Whether another try makes no sense: the error, or one that it wraps, is [`Final`].
    pub fn is_final(&self) -> bool {
        let Self::Error(error) = self else { return false };
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
        while let Some(error) = cause {
            if error.is::<Final>() {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => {
                let mut told = error.to_string();
                let mut source = error.source();
                while let Some(cause) = source {
                    // Some errors already include their cause.
                    let cause_text = cause.to_string();
                    if !told.ends_with(&cause_text) {
                        told = format!("{told}: {cause_text}");
                    }
                    source = cause.source();
                }
                f.write_str(&told)
            }
            Self::Panic(message) => write!(f, "the step panicked: {message}"),
            Self::TimedOut(limit) => write!(f, "the step ran longer than its limit of {limit:?}"),
        }
    }
}

impl std::error::Error for StepError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Error(error) => Some(&**error),
            Self::Panic(_) | Self::TimedOut(_) => None,
        }
    }
}

/// An error after which another try makes no sense, such as an account that does not exist. No retry policy of a job, a
/// flow's act, or a machine that follows [`Machine::retry`] tries again. It also counts when it is wrapped in other
/// errors that have it as their source.
///
/// ```
/// use dormouse::prelude::*;
///
/// struct Charge;
///
/// impl Job for Charge {
///     const NAME: &'static str = "charge";
///     type Input = u64;
///     type Output = ();
///
///     async fn run(&self, cents: u64, _cx: &Context) -> Result<(), BoxError> {
///         if cents == 0 {
///             return Err(Final::new("there is nothing to charge").into());
///         }
///         Ok(())
///     }
/// }
/// ```
pub struct Final(BoxError);

impl Final {
    /// Marks an error as final.
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into())
    }
}

impl fmt::Debug for Final {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Final").field(&self.0).finish()
    }
}

impl fmt::Display for Final {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Final {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

/// What an object-safe machine's step or handler resolves to.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<Transition, Fault>> + Send + 'a>>;

/// Why [`DynMachine::step`] or [`DynMachine::handle`] returned no transition.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The code failed: `handle` decides.
    Failed(BoxError),
    /// The step or state is not known to this code: the instance fails with this reason.
    Unreadable(String),
}

/// A machine over step names and JSON: what the engine runs, and what typed machines, jobs and flows become.
pub trait DynMachine: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> &str;
    /// Its version.
    fn version(&self) -> u32;
    /// The oldest version it takes over.
    fn migrates_from(&self) -> u32 {
        self.version()
    }
    /// The names of its steps.
    fn steps(&self) -> Vec<String>;
    /// The queue in which its instances wait by default.
    fn queue(&self) -> &str {
        "default"
    }
    /// Whether its transitions are recorded; `None` is the engine's choice.
    fn history(&self) -> Option<History> {
        None
    }
    /// The outputs of units it checks.
    fn takes(&self) -> Vec<Takes> {
        Vec::new()
    }
    /// The signals that it accepts.
    fn accepts(&self) -> Vec<Accepts> {
        Vec::new()
    }
    /// Whether it accepts signals that it does not declare.
    fn accepts_others(&self) -> bool {
        self.accepts().is_empty()
    }
    /// What the state of its steps must look like so that it decodes, if that is known.
    fn states(&self) -> Vec<Stated> {
        Vec::new()
    }
    /// The steps at which a cancel does not end an instance at once, but asks it to undo what it did and then to end.
    fn undo_on_cancel(&self) -> Vec<String> {
        Vec::new()
    }
    /// The fields of its states that instances are found by.
    fn indexes(&self) -> Vec<String> {
        Vec::new()
    }
    /// Its steps and the ways between them, if it declares them.
    fn graph(&self) -> Option<Graph> {
        None
    }
    /// Where its instances may start, to look ahead from.
    fn starts(&self) -> Vec<At> {
        let first = self.graph().and_then(|graph| graph.nodes.into_iter().next());
        first.map(|node| At { step: node.step.into(), state: Json::null() }).into_iter().collect()
    }
    /// Examples of what a signal carries.
    fn examples(&self, signal: &str) -> Vec<Json> {
        let accepts = self.accepts().into_iter().find(|accepts| accepts.name == signal);
        accepts.map_or_else(|| vec![Json::null()], |accepts| (accepts.examples)())
    }
    /// Everything that a step may do, without running it; `None` if that is unknown. By default, what its graph says.
    fn foresee(&self, ahead: &Ahead<'_>) -> Option<Vec<Foreseen>> {
        self.graph().map(|graph| by_graph(&graph, &ahead.at.step, ahead.cx))
    }
    /// How long one run of a step may take.
    fn step_timeout(&self) -> Option<Duration> {
        None
    }
    /// Migrates a step and state of an older version to this one.
    fn migrate(&self, from_version: u32, at: At) -> Result<At, BoxError>;
    /// Returns why this code cannot run an instance from this step and state.
    fn check(&self, at: &At) -> Result<(), String>;
    /// Runs a step.
    fn step<'a>(&'a self, at: &'a At, cx: &'a Context) -> Running<'a>;
    /// Decides what becomes of a step that failed.
    fn handle<'a>(&'a self, error: StepError, at: &'a At, cx: &'a Context) -> Running<'a>;
}
