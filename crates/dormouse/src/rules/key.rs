//! A key has one holder.

use jiff::Timestamp;

use super::{Change, Head};
use crate::{InstanceId, KeyScope, Status, UnitStatus};

/// The key that a row takes by being in its status, where its scope is not the default: the default never takes a key back,
/// except by a retry, which asks before.
pub(crate) fn takes_key(head: &Head) -> Option<&str> {
    let takes = head.key_scope != KeyScope::Live && head.key_scope.holds(head.status);
    head.key.as_deref().filter(|_| takes)
}

/// A status in which a key counts as taken cannot be entered while another holds it: this row alone fails, and lets go of its
/// claim on the key if even `failed` could not be saved with it.
pub(crate) fn fail_for_taken_key(change: &mut Change, holder: InstanceId, now: Timestamp) {
    let status = change.head.status;
    if status.is_terminal() {
        change.head.key_scope = KeyScope::In(Vec::new());
        return;
    }
    if status == Status::AwaitingCompletion {
        change.closes_unit = Some(UnitStatus::Cancelled);
    }
    if change.head.key_scope.holds(Status::Failed) {
        change.head.key_scope = KeyScope::In(Vec::new());
    }
    let parked_until = change.head.parked_until;
    change.fail(&format!("it could not become {status}: its key is taken by instance {holder}"), now);
    change.head.parked_until = parked_until;
}
