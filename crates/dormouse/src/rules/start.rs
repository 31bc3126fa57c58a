//! An instance is inserted.

use jiff::Timestamp;

use super::{Data, NewEvent};
use crate::{EventKind, NewInstance, Status, When};

/// How an instance begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Begun {
    /// Runnable, or parked on signals or on a moment.
    pub status: Status,
    /// When the clock wakes it.
    pub arms: Option<When>,
    /// The names it awaits.
    pub awaits: Vec<String>,
    /// `created`, and `signal.waiting` if it is parked on signals.
    pub events: Vec<NewEvent>,
}

/// How this instance begins: parked on signals if it names any, else at its moment if that is to come, else runnable. One in a
/// lane stands behind it until the lane is settled.
pub(crate) fn begin(new: &NewInstance, now: Timestamp) -> Begun {
    let forked = new.forked_from.map(|(from, seq)| Data::new().with("forked_from", from.0).with("seq", seq));
    let created = NewEvent { kind: EventKind::Created, data: forked };
    if let Some((names, timeout)) = &new.awaits {
        let (awaits, waiting) = super::outcome::waiting(names, *timeout);
        return Begun {
            status: Status::AwaitingSignal,
            arms: *timeout,
            awaits,
            events: vec![created, waiting],
        };
    }
    let arms = new.start_at.filter(|when| when.moment(now) > now);
    let status = if arms.is_some() { Status::Scheduled } else { Status::Runnable };
    Begun { status, arms, awaits: Vec::new(), events: vec![created] }
}
