//! An instance is inserted.

use jiff::Timestamp;

use super::{Change, Data, Head, NewEvent};
use crate::{EventKind, History, InstanceId, NewInstance, Status, When};

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
    let sent = new.sent_by.map(|(by, seq)| Data::new().with("sent_by", by.0).with("seq", seq));
    let created = NewEvent { kind: EventKind::Created, data: forked.or(sent) };
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

/// An instance that is inserted, at rest: what the first change of its life is. Its signals are delivered after it
/// ([`super::Input::Signal`]). One in a lane stands behind it ([`super::settle`]).
pub fn start(id: InstanceId, new: &NewInstance, parent: Option<(InstanceId, u32)>, now: Timestamp) -> Change {
    let Begun { status, arms, awaits, events } = begin(new, now);
    let head = Head {
        namespace: new.namespace.clone(),
        status,
        seq: events.len() as u64,
        queue: new.queue.clone(),
        runnable_at: now,
        wake_at: arms.map(|when| when.moment(now)),
        awaits,
        parent,
        lane: new.lane.clone(),
        blocked: new.lane.is_some() && status == Status::Runnable,
        keeps_history: new.history.unwrap_or_default() == History::On,
        key: new.key.clone(),
        key_scope: new.key_scope.clone(),
        ..Head::new(id, &new.machine, new.version, &new.at.step)
    };
    Change { state: Some(new.at.state.clone()), events, arms, ..Change::of(head) }
}
