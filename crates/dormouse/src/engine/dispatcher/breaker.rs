//! What this process reports of its sends to the breaker that all workers of a transport share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::one_line;
use crate::engine::Shared;
use crate::limits::storable;
use crate::store::{Gate, Judged, SendTally, Written};

/// How often a report is tried again that another transaction holds up, and the pause before each.
const TRIES_MAX: usize = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// How much of an error is kept.
const ERROR_CHARS_MAX: usize = 200;

/// How the other side took a send.
#[derive(Clone, Debug)]
pub(super) struct Response {
    /// The breaker's epoch when the send was taken.
    pub(super) epoch: i64,
    /// Why it failed; `None` if the other side responded, whatever it said.
    pub(super) failure: Option<String>,
}

/// A transport's breaker as this process last saw it.
pub(super) struct Breaker {
    transport: String,
    judges: AtomicBool,
    is_watched: AtomicBool,
}

impl Breaker {
    pub(super) fn new(transport: &str) -> Self {
        let (judges, is_watched) = (AtomicBool::new(true), AtomicBool::new(true));
        Self { transport: transport.to_owned(), judges, is_watched }
    }

    /// Notes what the last take said.
    pub(super) fn saw(&self, gate: Gate) {
        self.judges.store(gate.judges, Ordering::Relaxed);
        self.is_watched.store(gate.is_watched, Ordering::Relaxed);
    }

    /// Reports these responses, unless they change nothing: all is well, and was before.
    pub(super) async fn report(&self, shared: &Shared, responses: impl Iterator<Item = Response>) {
        if !self.judges.load(Ordering::Relaxed) {
            return;
        }
        for tally in tallies(responses) {
            if tally.failures > 0 {
                self.is_watched.store(true, Ordering::Relaxed);
            }
            if tally.failures > 0 || self.is_watched.load(Ordering::Relaxed) {
                self.judge(shared, tally).await;
            }
        }
    }

    async fn judge(&self, shared: &Shared, tally: SendTally) {
        for _ in 0..TRIES_MAX {
            let judged = match shared.store.judge(self.transport.clone(), tally.clone()).await {
                Ok(Written { value, effects }) => {
                    shared.store.poke(&effects);
                    value
                }
                // The next results say as much.
                Err(error) => return shared.outage.missed("judge", &error),
            };
            if judged != Judged::Busy {
                return self.tell(judged, &tally);
            }
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }

    /// Logs a change of the breaker, by the one process whose report made it.
    fn tell(&self, judged: Judged, tally: &SendTally) {
        let (transport, error) = (&*self.transport, tally.error.as_deref());
        let change = match judged {
            Judged::Opened { failures, until, again: false } => {
                tracing::warn!(transport, failures, %until, error, "its breaker is open: nothing is sent until then");
                "opened"
            }
            Judged::Closed => {
                tracing::warn!(transport, "its breaker is closed: sends succeed again");
                "closed"
            }
            Judged::Opened { .. } | Judged::Nothing | Judged::Busy => return,
        };
        metrics::counter!("dormouse_breaker_changes_total", "transport" => self.transport.clone(), "change" => change)
            .increment(1);
    }
}

/// The responses as the store takes them, by epoch.
fn tallies(responses: impl Iterator<Item = Response>) -> impl Iterator<Item = SendTally> {
    let mut tallies = BTreeMap::<i64, SendTally>::new();
    for Response { epoch, failure } in responses {
        let tally = tallies.entry(epoch).or_insert_with(|| SendTally { epoch, ..SendTally::default() });
        match failure {
            None => {
                tally.responded = true;
                tally.failures = 0;
            }
            Some(error) => {
                tally.failures += 1;
                let error: String = one_line(&error).chars().take(ERROR_CHARS_MAX).collect();
                tally.error = Some(storable(&error).into_owned());
            }
        }
    }
    tallies.into_values()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_after_the_last_response() {
        let of = |epoch, failure: Option<&str>| Response { epoch, failure: failure.map(str::to_owned) };
        let responses =
            [of(2, Some("a")), of(2, None), of(1, Some("old")), of(2, Some("b\nc")), of(2, Some("d"))];
        let tallies: Vec<_> = tallies(responses.into_iter()).collect();
        let tally = |epoch, responded, failures, error: &str| SendTally {
            epoch,
            responded,
            failures,
            error: Some(error.to_owned()),
        };
        assert_eq!(tallies, [tally(1, false, 1, "old"), tally(2, true, 2, "d")]);
    }
}
