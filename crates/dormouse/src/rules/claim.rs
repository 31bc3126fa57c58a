//! A worker takes it.

use super::Change;
use crate::{Status, WorkerId};

/// A claim is no transition: it writes the worker down, and nothing else changes. Its place in line stays, for when the claim
/// is lost.
pub(crate) fn claim(change: &mut Change, worker: WorkerId) {
    change.head.status = Status::Executing;
    change.head.worker = Some(worker);
}
