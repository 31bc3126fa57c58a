//! Its moment has come. **Timers need no sweep**: the engine sleeps until the nearest `wake_at` (`engine/timer.rs`,
//! and `Hub::arm` in `poke.rs`).

use jiff::Timestamp;

use super::Change;
use super::child::released;
use crate::{EventKind, Status, Wake};

/// A row whose `wake_at` has come becomes runnable. A timeout is a wake, not a failure. One that is parked on a unit is
/// fired by its unit's rules instead.
pub(crate) fn fire(change: &mut Change, now: Timestamp) {
    let head = &change.head;
    let (why, kind) = match head.status {
        Status::AwaitingChildren if head.barrier == Some(0) => return released(change, now),
        Status::AwaitingSignal => (Wake::Timeout, EventKind::SignalTimeout),
        Status::AwaitingChildren => (Wake::Timeout, EventKind::ChildrenTimeout),
        // The end of a backoff does not change the reason: the retried step sees why it woke in the first place.
        Status::Scheduled => (head.wake.unwrap_or(Wake::Clock), EventKind::TimerFired),
        // The clock has nothing to say to the others.
        _ => return,
    };
    let rests_from_crashes = head.crashes_seq == head.seq && head.status == Status::Scheduled;
    change.wake(why, now);
    change.record(kind, None);
    if rests_from_crashes {
        // The end of a pause after a crash is not a commit of the step.
        change.head.crashes_seq = change.head.seq;
    }
}
