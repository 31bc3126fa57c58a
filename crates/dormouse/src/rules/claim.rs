//! A worker takes it.

use super::Change;
use crate::{Status, WorkerId};

/// A claim is not a transition: it records the worker, and changes nothing else. The row keeps its place in line, in
/// case the claim is lost.
pub(crate) fn claim(change: &mut Change, worker: WorkerId) {
    change.head.status = Status::Executing;
    change.head.worker = Some(worker);
}
