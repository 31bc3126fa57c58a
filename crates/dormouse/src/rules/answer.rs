//! The outside answers the unit that an instance is parked on, or lets it wait too long.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Change, Data};
use crate::clock::{later, micros};
use crate::{
    Dispatch, EventKind, Interaction, InteractionId, Json, OnFailure, Shape, UnitId, UnitStatus, Wake,
};

/// A unit without its requests: what the rules of answers decide by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitHead {
    /// Its id.
    pub id: UnitId,
    /// How its requests are sent.
    pub transport: String,
    /// What a failed item does to it.
    pub on_failure: OnFailure,
    /// How its requests and outputs relate.
    pub shape: Shape,
    /// How many requests it has.
    pub interactions: u32,
    /// How many must complete; `None` waits for all to be resolved.
    pub quorum: Option<u32>,
    /// How many have completed.
    pub completed: u32,
    /// How many have failed, or came too late.
    pub failed: u32,
    /// The first item that has no place in flight yet.
    pub next_item: u32,
    /// How long an item may go unanswered.
    pub item_timeout_us: Option<i64>,
    /// The longest list that may come back.
    pub outputs_max: usize,
    /// When it is late as a whole.
    pub deadline: Option<Timestamp>,
    /// Its status.
    pub status: UnitStatus,
}

/// How an item is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered<'a> {
    /// From outside, with an output.
    Completed,
    /// From outside, with a failure.
    Failed(&'a str),
    /// Refused by its receiver, or given up by its sender.
    NotSent(&'a str),
    /// It came too late.
    TimedOut,
}

impl Default for UnitHead {
    /// One request that waits for its answer.
    fn default() -> Self {
        Self {
            id: UnitId(0),
            transport: crate::INTERACTION_API.to_owned(),
            on_failure: OnFailure::Fail,
            shape: Shape::One,
            interactions: 1,
            quorum: None,
            completed: 0,
            failed: 0,
            next_item: 1,
            item_timeout_us: None,
            outputs_max: 0,
            deadline: None,
            status: UnitStatus::Open,
        }
    }
}

impl UnitHead {
    /// A unit as a dispatch opens it, except for its deadline, which counts from the commit.
    pub fn opened(dispatch: &Dispatch, id: Option<UnitId>) -> Self {
        let interactions = dispatch.asks.len() as u32;
        Self {
            id: id.unwrap_or(UnitId(0)),
            transport: dispatch.transport.clone(),
            on_failure: dispatch.on_failure,
            shape: dispatch.shape,
            interactions,
            quorum: dispatch.needed(),
            next_item: interactions.min(dispatch.in_flight.unwrap_or(u32::MAX)),
            item_timeout_us: dispatch.item_timeout.map(micros),
            outputs_max: dispatch.outputs_max,
            ..Self::default()
        }
    }

    /// The deadline of an item that is opened now: its own or its unit's, whichever is nearer.
    pub fn item_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let timeout_us = self.item_timeout_us.map(i64::unsigned_abs);
        let own = timeout_us.map(|timeout| later(now, Duration::from_micros(timeout)));
        own.into_iter().chain(self.deadline).min()
    }

    /// The least number of further answers that close it.
    pub(crate) fn to_come(&self) -> u32 {
        match self.quorum {
            Some(quorum) => quorum - self.completed,
            None => self.interactions - self.completed - self.failed,
        }
    }

    /// What the event of its end records.
    fn closing_data(&self) -> Data {
        Data::new().with("unit", self.id.0).with("completed", self.completed).with("failed", self.failed)
    }
}

/// Whether what was resolved last decides a unit, and how.
pub(crate) fn items_verdict(unit: &UnitHead, last: &Answered<'_>) -> Option<UnitStatus> {
    let is_failure = !matches!(last, Answered::Completed);
    if is_failure && unit.on_failure == OnFailure::Fail {
        return Some(UnitStatus::Failed);
    }
    match unit.quorum {
        Some(quorum) if unit.completed >= quorum => Some(UnitStatus::Completed),
        Some(quorum) if unit.interactions - unit.failed < quorum => Some(UnitStatus::Failed),
        None if unit.completed + unit.failed == unit.interactions => Some(UnitStatus::Completed),
        _ => None,
    }
}

/// **A repeated answer gets the first**: the answer that an interaction already has, if any.
pub(crate) fn first_answer(interaction: &Interaction) -> Option<Result<Json, String>> {
    interaction.answered.then(|| {
        let error = || interaction.error.clone().unwrap_or_default();
        interaction.output.clone().ok_or_else(error)
    })
}

/// Resolves one open item: the unit is closed, and wakes its instance, or waits for others. Returns whether the next item
/// gets its place in flight.
pub(crate) fn answer(
    change: &mut Change,
    unit: &mut UnitHead,
    (id, item): (InteractionId, u32),
    how: &Answered<'_>,
    now: Timestamp,
) -> bool {
    let data = Data::new().with("unit", unit.id.0).with("interaction", id.0).with("item", item);
    let (kind, data) = match how {
        Answered::Completed => (EventKind::InteractionCompleted, data),
        Answered::Failed(error) | Answered::NotSent(error) => {
            (EventKind::InteractionFailed, data.with("error", *error))
        }
        Answered::TimedOut => (EventKind::InteractionTimedOut, data),
    };
    change.record(kind, Some(data));
    match how {
        Answered::Completed => unit.completed += 1,
        _ => unit.failed += 1,
    }
    if let Some(status) = items_verdict(unit, how) {
        unit.status = status;
        close(change, unit, status, now);
        return false;
    }
    change.head.barrier = Some(unit.to_come());
    unit.next_item < unit.interactions
}

/// A request was sent.
pub(crate) fn send_recorded(change: &mut Change, unit: UnitId, (id, item): (InteractionId, u32), sends: u32) {
    let data =
        Data::new().with("unit", unit.0).with("interaction", id.0).with("item", item).with("sends", sends);
    change.record(EventKind::InteractionDispatched, Some(data));
}

/// A unit is closed, and wakes its instance.
pub(crate) fn close(change: &mut Change, unit: &UnitHead, status: UnitStatus, now: Timestamp) {
    let (kind, wake) = match status {
        UnitStatus::Completed => (EventKind::UnitCompleted, Wake::Unit),
        UnitStatus::Failed => (EventKind::UnitFailed, Wake::Unit),
        UnitStatus::TimedOut => (EventKind::UnitTimedOut, Wake::Timeout),
        UnitStatus::Open | UnitStatus::Cancelled => panic!("a unit that is {status} wakes nobody"),
    };
    change.record(kind, Some(unit.closing_data()));
    change.closes_unit = Some(status);
    change.head.barrier = Some(0);
    change.wake(wake, now);
}

/// Cancels the unit of an instance that is cancelled.
pub(super) fn cancel_unit(change: &mut Change, unit: &UnitHead) {
    change.record(EventKind::UnitCancelled, Some(unit.closing_data()));
    change.closes_unit = Some(UnitStatus::Cancelled);
}
