//! **A lane is handed over**: the holders of a lane are the rows that execute, or are runnable and not blocked. A lane has as
//! many as its width allows, which is 1 without a limit.

use jiff::Timestamp;

use super::{Change, Head};
use crate::{LaneChange, Status};

/// Puts a changed row into its lane: a row that did not hold the lane before waits until the lane is settled. Returns
/// whether the lane is to be settled: the row waits for it, or has let go of it, or is given back, perhaps to a lane that has
/// become too narrow for it.
pub fn settle(was_open: bool, head: &mut Head) -> bool {
    if head.lane.is_none() {
        return false;
    }
    head.blocked = head.status == Status::Runnable && (head.paused || !was_open);
    head.blocked || (was_open && head.status != Status::Executing)
}

/// **A step may leave its lane**, for another or for none, with an outcome that goes on. It lets go of its place, and stands at
/// the end of the new line. An outcome that leads to the lane it is in changes nothing.
pub fn change_lane(change: &mut Change, lane: &LaneChange, now: Timestamp) {
    if change.head.status.is_terminal() || change.head.lane.as_deref() == lane.lane() {
        return;
    }
    change.head.lane = lane.lane().map(str::to_owned);
    if change.head.status == Status::Runnable {
        change.head.runnable_at = now;
    }
}
