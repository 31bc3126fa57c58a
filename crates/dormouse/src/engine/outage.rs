//! An outage of the store: one line in the log when it begins, and one when it is over.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::Error;

/// The verbs that the store could not do, from the first failure until each of them has succeeded again.
#[derive(Default)]
pub(super) struct Outage {
    /// Looked at after each success, so that a store that works costs no lock.
    is_on: AtomicBool,
    state: Mutex<Option<State>>,
}

struct State {
    since: Instant,
    failures: u64,
    failing: BTreeSet<&'static str>,
}

impl Outage {
    /// Notes the failure of a verb that is tried again until it succeeds.
    pub(super) fn failed(&self, verb: &'static str, error: &Error) {
        // A file that a newer program has upgraded refuses everything until this process is stopped.
        let lasts = error.is_transient() || matches!(error, Error::NewerSchema { .. });
        if !lasts {
            tracing::warn!(%error, verb, "the store refuses; trying again");
            return;
        }
        let mut state = self.lock();
        if state.is_none() {
            tracing::warn!(%error, verb, "the store fails: trying again until it works");
            self.is_on.store(true, Ordering::Relaxed);
        }
        let state = state.get_or_insert_with(|| State {
            since: Instant::now(),
            failures: 0,
            failing: BTreeSet::new(),
        });
        state.failures += 1;
        metrics::counter!("dormouse_store_failures_total").increment(1);
        state.failing.insert(verb);
        tracing::debug!(%error, verb, failures = state.failures, "the store fails");
    }

    /// Notes the failure of a call that is not repeated. During an outage it is not news.
    pub(super) fn missed(&self, verb: &'static str, error: &Error) {
        let is_on = self.is_on.load(Ordering::Relaxed);
        if is_on && (error.is_transient() || matches!(error, Error::NewerSchema { .. })) {
            tracing::debug!(%error, verb, "the store fails");
        } else {
            tracing::warn!(%error, verb, "the store could not do this");
        }
    }

    /// Notes that a verb has succeeded.
    pub(super) fn succeeded(&self, verb: &'static str) {
        if self.is_on.load(Ordering::Relaxed) {
            let mut state = self.lock();
            let is_last = state.as_mut().is_some_and(|state| {
                state.failing.remove(verb);
                state.failing.is_empty()
            });
            if is_last {
                self.end(&mut state);
            }
        }
    }

    /// Notes that this engine has registered again: what was tried before is not tried any more.
    pub(super) fn registered(&self) {
        if self.is_on.load(Ordering::Relaxed) {
            self.end(&mut self.lock());
        }
    }

    fn end(&self, state: &mut Option<State>) {
        if let Some(State { since, failures, .. }) = state.take() {
            self.is_on.store(false, Ordering::Relaxed);
            tracing::warn!(failures, outage_ms = since.elapsed().as_millis() as u64, "the store works again");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}
