//! One of its children ended.

use jiff::Timestamp;

use super::{Change, Data, Head};
use crate::{Children, EventKind, Status, Wake, When};

/// What is special about a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// Ends other than `done` that it bears, where only `done` counts; `None`: every end counts.
    pub spare: Option<u32>,
    /// What becomes of the children that still live when it is released.
    pub on_release: Children,
}

/// What an end did to a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// Nothing: the parent no longer waits for that round.
    NotWaiting,
    /// The barrier still waits for others.
    Lowered,
    /// The parent wakes.
    Woken,
    /// The clock cancels the rest, some at a time, and then wakes the parent.
    LetsGoOfRest,
}

/// Whether a parent still waits for a round: its barrier is raised for just that one.
pub(crate) fn joined(head: &Head, round: u32) -> bool {
    head.status == Status::AwaitingChildren
        && head.round == round
        && head.barrier.is_some_and(|ends| ends > 0)
}

/// **A barrier is joined once** by each child (`Head::joined` of the child, in [`super::Change::joins`]). Every end counts,
/// or, where the barrier has something to spare, only one that is done, and any other takes from that
/// ([`super::Change::spare`]).
pub(crate) fn join(
    change: &mut Change,
    round: u32,
    status: Status,
    barrier: Option<Barrier>,
    now: Timestamp,
) -> Released {
    if !joined(&change.head, round) {
        return Released::NotWaiting;
    }
    let ends = change.head.barrier.expect("a joined barrier is raised");
    let to_come = match barrier.and_then(|barrier| barrier.spare) {
        Some(0) if status != Status::Done => 0,
        Some(spare) if status != Status::Done => {
            change.spare = Some(spare - 1);
            return Released::Lowered;
        }
        _ => ends - 1,
    };
    change.head.barrier = Some(to_come);
    if to_come > 0 {
        return Released::Lowered;
    }
    match barrier.map(|barrier| barrier.on_release) {
        Some(Children::Cancel) => {
            change.head.wake_at = Some(now);
            change.arms = Some(When::At(now));
            Released::LetsGoOfRest
        }
        Some(Children::Keep) | None => {
            released(change, now);
            Released::Woken
        }
    }
}

/// Wakes a parent whose barrier is released.
pub(super) fn released(change: &mut Change, now: Timestamp) {
    change.wake(Wake::Children, now);
    let round = change.head.round;
    change.record(EventKind::ChildrenJoined, Some(Data::new().with("round", round)));
}
