//! Jobs: one async function, retried. A one-step machine, no second engine.

use std::future::Future;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Machine, StepResult};
use crate::graph::Graph;
use crate::{BoxError, Context, History, Outcome, Retry};

/// One async function over an input, run until it succeeds or its retries are used up.
///
/// ```
/// use dormouse::prelude::*;
///
/// struct SendMail;
///
/// impl Job for SendMail {
///     const NAME: &'static str = "send_mail";
///     type Input = String;
///     type Output = ();
///
///     async fn run(&self, address: String, _cx: &Context) -> Result<(), BoxError> {
///         println!("to {address}");
///         Ok(())
///     }
/// }
/// ```
pub trait Job: Sized + Send + Sync + 'static {
    /// The job's name.
    const NAME: &'static str;
    /// The queue in which it waits by default.
    const QUEUE: &'static str = "default";
    /// Whether its transitions are recorded; `None` is the engine's choice.
    const HISTORY: Option<History> = None;
    /// How long one run may take; `None` is forever.
    const RUN_TIMEOUT: Option<Duration> = None;

    /// Its input.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// Its output.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// Does the work. It may run again after a crash.
    fn run(
        &self,
        input: Self::Input,
        cx: &Context,
    ) -> impl Future<Output = Result<Self::Output, BoxError>> + Send;

    /// How often it is tried and how long it waits in between: by default 20 times with backoff. After an error that is
    /// [`crate::Final`] it is not tried again.
    fn retry(&self) -> Retry {
        Retry::times(20)
    }
}

/// The machine that a job is.
#[derive(Debug)]
pub struct JobMachine<J>(pub J);

/// The one step of a job.
#[derive(Debug, Serialize, Deserialize)]
pub enum JobState<I> {
    /// The input to work on.
    Run(I),
}

impl<J: Job> Machine for JobMachine<J> {
    const NAME: &'static str = J::NAME;
    const QUEUE: &'static str = J::QUEUE;
    const HISTORY: Option<History> = J::HISTORY;
    const STEP_TIMEOUT: Option<Duration> = J::RUN_TIMEOUT;
    type State = JobState<J::Input>;
    type Output = J::Output;

    async fn step(&self, JobState::Run(input): Self::State, cx: &Context) -> StepResult<Self> {
        self.0.run(input, cx).await.map(Outcome::done)
    }

    fn retry(&self) -> Retry {
        self.0.retry()
    }

    fn graph() -> Option<Graph> {
        Some(Graph::new().step("Run").done().fails())
    }
}
