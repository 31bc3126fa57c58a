//! Somebody cancels it.

use jiff::Timestamp;

use super::answer::cancel_unit;
use super::signal::{arrive, wake_by_signal};
use super::{Change, Data, Head, UnitHead};
use crate::{EventKind, InboxSignal, InstanceId, Status, Wake};

/// Why an instance is cancelled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// What somebody said.
    pub reason: Option<String>,
    /// The ancestor that takes it along.
    pub with: Option<InstanceId>,
}

/// What a cancel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It has ended.
    Ended,
    /// Its step runs, or its machine undoes: it ends later.
    Asked,
}

/// Why those that a barrier leaves behind are cancelled.
const LEFT_BEHIND: &str = "its parent no longer waits for it";

/// Notes why an instance is cancelled, or asked to end. What was said first stays.
pub(crate) fn cancelled_because(head: &mut Head, cause: &Cause) {
    head.cancel_reason = head.cancel_reason.take().or_else(|| cause.reason.clone());
    head.cancelled_with = head.cancelled_with.or(cause.with);
}

/// **Cancel of a running step**: it is marked, its worker hears of it, and its commit ends it as cancelled whatever the
/// outcome ([`end_cancelled`]). One that does not run ends at once.
pub(crate) fn cancel(change: &mut Change, unit: Option<&UnitHead>, now: Timestamp) -> Cancelled {
    if change.head.status == Status::Executing {
        change.head.cancel_requested = true;
        return Cancelled::Asked;
    }
    end_cancelled(change, unit, now);
    Cancelled::Ended
}

/// Ends it as cancelled, and cancels the unit that it is parked on.
pub(crate) fn end_cancelled(change: &mut Change, unit: Option<&UnitHead>, now: Timestamp) {
    if change.head.status == Status::AwaitingCompletion {
        cancel_unit(change, unit.expect("an instance is parked on a unit that is there"));
    }
    let Head { cancel_reason, cancelled_with, .. } = &change.head;
    let mut data = Data::new();
    if let Some(reason) = cancel_reason {
        data = data.with("reason", &**reason);
    }
    if let Some(with) = cancelled_with {
        data = data.with("with", with.0);
    }
    let data = Some(data).filter(|data| !data.fields.is_empty());
    change.end(Status::Cancelled, EventKind::Cancelled, data, now);
}

/// A cancel at a step whose machine undoes what it did: the request is a signal in its inbox, and wakes it. One that waits
/// for children that still live is woken by their ends; one that runs sees it at its next step.
pub(crate) fn ask_to_undo(
    change: &mut Change,
    request: &InboxSignal,
    unit: Option<&UnitHead>,
    has_live_children: bool,
    now: Timestamp,
) {
    arrive(&mut change.head, request.payload.as_str().len());
    match change.head.status {
        Status::AwaitingCompletion => {
            cancel_unit(change, unit.expect("an instance is parked on a unit that is there"));
            change.wake(Wake::Unit, now);
        }
        Status::AwaitingSignal | Status::Scheduled => wake_by_signal(change, request, now),
        Status::AwaitingChildren if !has_live_children => wake_by_signal(change, request, now),
        _ => {}
    }
}

/// A released barrier leaves this child behind: its end counts for its parent no more, and it is cancelled.
pub(crate) fn let_go_by_parent(head: &mut Head) {
    head.joined = true;
    cancelled_because(head, &Cause { reason: Some(LEFT_BEHIND.to_owned()), with: None });
}
