//! **A lane is handed over**: the holder of a lane is the row that executes, or is runnable and not blocked.

use super::Head;
use crate::Status;

/// Puts a changed row into its lane: a row that did not hold the lane before waits until the lane is settled. Returns
/// whether the lane may have no holder now, so that the next in line gets it.
pub fn settle(was_open: bool, head: &mut Head) -> bool {
    if head.lane.is_none() {
        return false;
    }
    head.blocked = head.status == Status::Runnable && (head.paused || !was_open);
    head.blocked || (was_open && !head.is_open())
}
