//! Editing a state: an operator's repair. The instance stays where it is.

use super::Change;
use crate::{EventKind, Json, Status};

/// Replaces the state; returns why that cannot be done.
pub(crate) fn edit(change: &mut Change, state: Json) -> Option<&'static str> {
    let refused = edit_refused(change.head.status);
    if refused.is_none() {
        change.state = Some(state);
        change.record(EventKind::StateEdited, None);
    }
    refused
}

/// Why the state of an instance in this status cannot be replaced.
pub(crate) fn edit_refused(status: Status) -> Option<&'static str> {
    match status {
        Status::Executing => {
            Some("its step runs with the old state; pause it, and try again when the step has ended")
        }
        Status::Done => Some("it is done, and nothing reads its state any more; fork it instead"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InstanceId;
    use crate::rules::Head;

    #[test]
    fn an_edit_changes_the_state_alone_and_is_an_event() {
        for status in Status::ALL {
            let head = Head { status, ..Head::new(InstanceId(1), "m", 1, "start") };
            let mut change = Change::of(head.clone());
            let refused = edit(&mut change, Json::from(serde_json::json!({ "a": 1 })));
            assert_eq!(refused.is_some(), matches!(status, Status::Executing | Status::Done), "{status}");
            assert_eq!(change.head.seq, head.seq + u64::from(refused.is_none()));
            assert_eq!(Head { seq: head.seq, ..change.head }, head);
        }
    }
}
