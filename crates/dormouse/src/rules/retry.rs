//! Somebody retries it after its end.

use jiff::Timestamp;

use super::Change;
use crate::{At, EventKind, Status, Wake, When};

/// What an ended instance had been parked on, as the store finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastWait {
    /// Until when it had awaited signals.
    pub until: Option<Timestamp>,
    /// Whether its last round was a unit.
    pub was_unit: bool,
}

/// Makes an ended instance live again. One that was ended while it waited waits again; had it been woken, its step runs. What
/// it waited for other than signals was cancelled with it, or has ended meanwhile: it sees how.
pub(crate) fn retry(change: &mut Change, at: Option<&At>, last: LastWait, now: Timestamp) {
    let head = &mut change.head;
    head.attempt = 0;
    head.ended_at = None;
    head.cancel_reason = None;
    head.cancelled_with = None;
    let was_parked = head.wake.is_none();
    let until = head.parked_until.take().or(last.until);
    match at {
        Some(at) => {
            if was_parked {
                head.awaits.clear();
                head.barrier = None;
            }
            change.go_to(at);
            change.run_at(now);
        }
        None if was_parked && !head.awaits.is_empty() => {
            change.park(Status::AwaitingSignal, until.map(When::At), now);
        }
        None if was_parked && head.barrier.is_some() => {
            change.wake(if last.was_unit { Wake::Unit } else { Wake::Children }, now);
        }
        None => change.run_at(now),
    }
    change.record(EventKind::Retried, None);
}
