//! Somebody puts its brake on or off.

use super::Change;

/// A paused instance keeps its status, takes signals, and is not claimed. It is not a transition.
pub(crate) fn pause(change: &mut Change, on: bool) {
    change.head.paused = on;
}
