//! Which signals an outcome awaits, and for how long.

use crate::{Signal, When};

/// The signals that a step awaits, any of which wakes it, and how long it waits for them: see
/// [`crate::Outcome::await_signal`], which takes a [`Signal`], a list of names, or one of these.
///
/// ```
/// use std::time::Duration;
/// use dormouse::{Await, Signal};
///
/// const PAID: Signal<u64> = Signal::named("paid");
/// const WITHDRAWN: Signal<String> = Signal::named("withdrawn");
///
/// let either: Await = PAID.or(WITHDRAWN).timeout(Duration::from_secs(3600));
/// // Names that are known only when the program runs.
/// let votes = Await::any((1..=3).map(|voter| format!("vote-{voter}")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "nothing waits before `Outcome::await_signal` is returned"]
pub struct Await {
    pub(super) names: Vec<String>,
    pub(super) timeout: Option<When>,
}

impl Await {
    /// Awaits any of these, by name. An outcome with an empty list is refused, because it could never wake.
    pub fn any<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), timeout: None }
    }

    /// Awaits this signal as well, whatever the type of its payload.
    pub fn or<T>(mut self, signal: Signal<T>) -> Self {
        self.names.push(signal.into());
        self
    }

    /// Wakes the step at this moment, or after this duration, if no signal did before: a wake, not a failure.
    pub fn timeout(mut self, after: impl Into<When>) -> Self {
        self.timeout = Some(after.into());
        self
    }
}

impl<T> Signal<T> {
    /// Awaits this signal or another, whatever the types of their payloads.
    pub fn or<U>(self, other: Signal<U>) -> Await {
        Await::from(self).or(other)
    }

    /// Awaits this signal, but no longer than until this moment or for this duration: a wake, not a failure.
    pub fn timeout(self, after: impl Into<When>) -> Await {
        Await::from(self).timeout(after)
    }
}

impl<T> From<Signal<T>> for Await {
    fn from(signal: Signal<T>) -> Self {
        Self::any([signal])
    }
}

impl<N: Into<String>, const COUNT: usize> From<[N; COUNT]> for Await {
    fn from(names: [N; COUNT]) -> Self {
        Self::any(names)
    }
}

impl<N: Into<String>> From<Vec<N>> for Await {
    fn from(names: Vec<N>) -> Self {
        Self::any(names)
    }
}
