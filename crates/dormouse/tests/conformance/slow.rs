//! A machine whose steps are async, so that a test can hold them.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dormouse::{At, BoxError, Context, DynMachine, Fault, Running, StepError, Transition};

type Stepping = Pin<Box<dyn Future<Output = Result<Transition, Fault>> + Send>>;
type StepFn = Box<dyn Fn(At, Context) -> Stepping + Send + Sync>;
type HandleFn = Box<dyn Fn(StepError) -> Result<Transition, Fault> + Send + Sync>;

/// A machine called `m` whose steps, error handler and time limit the test gives.
pub struct Slow {
    step: StepFn,
    handle: HandleFn,
    timeout: Option<Duration>,
}

impl Slow {
    pub fn new<F, Fut>(step: F) -> Self
    where
        F: Fn(At, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Transition, Fault>> + Send + 'static,
    {
        Self {
            step: Box::new(move |at, cx| Box::pin(step(at, cx))),
            handle: Box::new(|error| Ok(Transition::Fail { error: format!("handled: {error}") })),
            timeout: None,
        }
    }

    pub fn handle(
        mut self,
        handle: impl Fn(StepError) -> Result<Transition, Fault> + Send + Sync + 'static,
    ) -> Self {
        self.handle = Box::new(handle);
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub fn machine(self) -> Arc<dyn DynMachine> {
        Arc::new(self)
    }
}

impl DynMachine for Slow {
    fn name(&self) -> &str {
        "m"
    }

    fn version(&self) -> u32 {
        1
    }

    fn steps(&self) -> Vec<String> {
        Vec::new()
    }

    fn step_timeout(&self) -> Option<Duration> {
        self.timeout
    }

    fn migrate(&self, _from_version: u32, at: At) -> Result<At, BoxError> {
        Ok(at)
    }

    fn check(&self, _at: &At) -> Result<(), String> {
        Ok(())
    }

    fn step<'a>(&'a self, at: &'a At, cx: &'a Context) -> Running<'a> {
        (self.step)(at.clone(), cx.clone())
    }

    fn handle<'a>(&'a self, error: StepError, _at: &'a At, _cx: &'a Context) -> Running<'a> {
        Box::pin(async move { (self.handle)(error) })
    }
}
