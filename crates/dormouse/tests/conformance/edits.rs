//! Editing a state: an operator's repair of an instance that stays where it is.

use dormouse::{Error, EventKind, Json, Status};
use serde_json::json;

use crate::kit::*;

suite![
    a_parked_instance_gets_another_state_and_stays_parked,
    a_failed_instance_is_edited_and_then_retried,
    the_state_of_a_running_or_done_instance_is_not_edited,
    an_edit_of_what_was_not_seen_changes_nothing,
];

fn state(value: serde_json::Value) -> Json {
    Json::from(value)
}

async fn a_parked_instance_gets_another_state_and_stays_parked(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m_at(at_with("start", json!({ "n": 1 }))).lane("l")).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "go"))).await;
    let before = kit.get(id).await;
    assert_eq!(kit.client().edit_state(id, state(json!({ "n": 2 }))).await.expect("an edit"), id);
    let after = kit.get(id).await;
    assert_eq!(
        (after.status, after.step.as_str(), after.seq),
        (Status::AwaitingSignal, "go", before.seq + 1)
    );
    assert_eq!((after.state.as_str(), &after.awaits), (r#"{"n":2}"#, &before.awaits));
    assert_eq!(kit.story(id).await.last(), Some(&EventKind::StateEdited));
    assert_eq!(kit.history(id).await.pop().map(|event| event.state), Some(state(json!({ "n": 2 }))));
    kit.deliver(id, signal("go")).await;
    assert_eq!(kit.claim_one(worker).await.at.state, state(json!({ "n": 2 })));
    kit.check_counts("an edit").await;
}

async fn a_failed_instance_is_edited_and_then_retried(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m_at(at_with("start", json!({ "n": 1 })))).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, fail("bad"))).await;
    kit.client().edit_state(id, state(json!({ "n": 3 }))).await.expect("an edit");
    let edited = kit.get(id).await;
    assert_eq!((edited.status, edited.last_error.as_deref()), (Status::Failed, Some("bad")));
    kit.client().retry(id).await.expect("a retry");
    assert_eq!(kit.claim_one(worker).await.at.state, state(json!({ "n": 3 })));
}

async fn the_state_of_a_running_or_done_instance_is_not_edited(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let refused = kit.client().edit_state(id, state(json!(1))).await;
    assert!(matches!(refused, Err(Error::WrongStatus { status: Status::Executing, .. })), "{refused:?}");
    kit.commit(worker, commit(&claimed, done())).await;
    let before = kit.get(id).await;
    let refused = kit.client().edit_state(id, state(json!(1))).await;
    assert!(matches!(refused, Err(Error::WrongStatus { status: Status::Done, .. })), "{refused:?}");
    assert_eq!(kit.get(id).await, before);
}

async fn an_edit_of_what_was_not_seen_changes_nothing(kit: Kit) {
    let id = kit.insert(m()).await;
    let refused = kit.client().edit_state(id, state(json!(1))).expected_seq(7).await;
    assert!(matches!(refused, Err(Error::StaleSeq { actual: 1, .. })), "{refused:?}");
    assert!(matches!(kit.client().edit_state("nobody", state(json!(1))).await, Err(Error::NotFound(_))));
    let elsewhere = kit.client().in_namespace("other").expect("a namespace");
    assert!(matches!(elsewhere.edit_state(id, state(json!(1))).await, Err(Error::NotFound(_))));
    assert_eq!(kit.get(id).await.seq, 1);
}
