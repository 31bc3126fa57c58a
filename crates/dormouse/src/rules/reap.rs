//! Its worker died, or gave it back.

use std::time::Duration;

use jiff::Timestamp;

use super::{Change, Data};
use crate::{EventKind, Status, When};

/// A claim that was lost with its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash<'a> {
    /// The worker's name, if it is still known.
    pub worker: Option<&'a str>,
    /// After so many crashes in a row, with no commit between them, the instance has failed.
    pub crashes_max: u32,
    /// Its place among those that were lost together.
    pub place: u64,
}

impl Crash<'_> {
    /// How long a step rests that has crashed more than once in a row: a quarter of a second, twice as long each time,
    /// and up to as much again by its place. Whichever kills its worker, the others do not run beside it every time.
    fn pause(&self, crashes: u32) -> Option<Duration> {
        let doubled = crashes.checked_sub(2)?.min(8);
        Some(Duration::from_micros((250_000 << doubled) * (64 + self.place % 64) / 64))
    }
}

/// Takes back a claim on which a step ran, or may have: a lost try counts as one, and the step runs again, in its old place,
/// with its old inputs. If it crashed more than once in a row, it rests before that, or its instance has failed.
pub(crate) fn take_back(
    change: &mut Change,
    worker: Option<&str>,
    crash: Option<&Crash<'_>>,
    now: Timestamp,
) {
    let head = &mut change.head;
    head.attempt += 1;
    let crashes = if head.crashes_seq == head.seq { head.crashes } else { 0 };
    let place = head.runnable_at;
    change.run_at(place);
    change.record(EventKind::Reaped, Some(Data::new().with("worker", worker)));
    let head = &mut change.head;
    head.crashes = crashes + u32::from(crash.is_some());
    head.crashes_seq = head.seq;
    let Some(crash) = crash else { return };
    if head.crashes >= crash.crashes_max {
        let error = too_many_crashes(&head.step, head.crashes);
        change.fail(&error, now);
    } else if let Some(pause) = crash.pause(head.crashes) {
        change.park(Status::Scheduled, Some(When::In(pause)), now);
    }
}

/// A claim on which no step ran leaves no trace.
pub(crate) fn forget_claim(change: &mut Change) {
    let place = change.head.runnable_at;
    change.run_at(place);
}

/// Why an instance failed whose step took its worker along again and again.
fn too_many_crashes(step: &str, crashes: u32) -> String {
    format!(
        "its worker died, or lost its lease, {crashes} times in a row while step {step:?} ran: it is not tried again; \
         retry the instance once the cause is mended"
    )
}
