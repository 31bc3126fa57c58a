//! What a parent sees of its children, and a child of its parent.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::{Error, Json, Spawn, Status, Transition};
use serde_json::json;

use crate::kit::*;

suite![
    a_parent_sees_how_far_each_child_got,
    the_state_of_a_child_comes_in_its_own_type,
    a_retried_parent_sees_how_far_its_cancelled_children_had_got,
];

async fn a_parent_sees_how_far_each_child_got(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m().priority(-1)).await;
    let timeout = Some(Duration::from_secs(60).into());
    let children = vec![child(); 4];
    let claimed = kit.claim_one(worker).await;
    let spawned = Spawn { timeout, ..spawn(children, "join") };
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawned))).await;
    let claimed = kit.claim_from(worker, "default", &[("c", 1)], 3).await;
    kit.advance(Duration::from_millis(1));
    let middle = || at_with("middle", json!({ "n": 1.50, "who": "é" }));
    kit.commit(worker, commit(&claimed[0], Transition::Next { at: middle() })).await;
    kit.commit(worker, commit(&claimed[1], Transition::Next { at: middle() })).await;
    kit.commit(worker, commit(&claimed[2], wait_for(&["go"], "end"))).await;
    // The fourth has never run, so it comes first.
    let claimed = kit.claim_from(worker, "default", &[("c", 1)], 3).await;
    assert_eq!(claimed.len(), 3);
    kit.commit(worker, commit(&claimed[1], done())).await;
    kit.commit(worker, commit(&claimed[2], fail("boom"))).await;
    kit.advance(Duration::from_secs(60));
    kit.due().await;

    let woken = kit.claim_one(worker).await;
    assert_eq!(woken.id, parent);
    let [done, failed, waits, runs] = &woken.children[..] else { panic!("{:?}", woken.children) };
    let told = |child: &dormouse::ChildView| {
        let state = child.state.as_ref().map(|state| state.as_str().to_owned());
        (child.status, child.step.clone(), state, child.version)
    };
    let text = Some(middle().state.as_str().to_owned());
    let null = Some("null".to_owned());
    assert_eq!(told(done), (Status::Done, "middle".to_owned(), None, 1), "its output is enough");
    assert_eq!(done.output, Some(Json::null()));
    assert_eq!(told(failed), (Status::Failed, "middle".to_owned(), text, 1));
    assert_eq!((failed.error.as_deref(), &failed.output), (Some("boom"), &None));
    assert_eq!(told(waits), (Status::AwaitingSignal, "end".to_owned(), null.clone(), 1));
    assert_eq!(told(runs), (Status::Executing, "start".to_owned(), null, 1));
}

async fn the_state_of_a_child_comes_in_its_own_type(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let pick = NewInstance::of::<Picker>(Picking::Pick { left: 3 });
    let spawned = Spawn { timeout: Some(Duration::ZERO.into()), ..spawn(vec![pick], "join") };
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawned))).await;
    kit.due().await;
    let woken = kit.claim_one(worker).await;
    assert_eq!(woken.id, parent);
    let child = &woken.children[0];
    assert_eq!(child.state_as::<Picker>().expect("its own type"), Some(Picking::Pick { left: 3 }));
    let error = child.state_as::<Other>().expect_err("of another machine");
    assert!(matches!(error, Error::WrongMachine { id, .. } if id == child.id), "{error}");
    let older = dormouse::ChildView { state: Some(Json::from(json!({ "right": 1 }))), ..child.clone() };
    let error = older.state_as::<Picker>().expect_err("it cannot be read");
    assert!(error.to_string().contains("child's state does not decode"), "{error}");
    let done = dormouse::ChildView { status: Status::Done, state: None, ..child.clone() };
    assert_eq!(done.state_as::<Picker>().expect("nothing to read"), None);
}

async fn a_retried_parent_sees_how_far_its_cancelled_children_had_got(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let far = NewInstance::named("c", 1, at_with("far", json!([1])));
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(vec![far], "join")))).await;
    kit.client().cancel(parent).await.expect("a live instance");
    kit.client().retry(parent).await.expect("it is cancelled");
    let woken = kit.claim_one(worker).await;
    let child = &woken.children[0];
    let state = child.state.as_ref().map(Json::as_str);
    assert_eq!((child.status, child.step.as_str(), state), (Status::Cancelled, "far", Some("[1]")));
}

fn child() -> NewInstance {
    NewInstance::named("c", 1, at("start"))
}

struct Picker;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Picking {
    Pick { left: u32 },
}

impl Machine for Picker {
    const NAME: &'static str = "picker";
    type State = Picking;
    type Output = ();

    async fn step(&self, _state: Picking, _cx: &Context) -> StepResult<Self> {
        Ok(Outcome::done(()))
    }
}

struct Other;

impl Machine for Other {
    const NAME: &'static str = "other";
    type State = Picking;
    type Output = ();

    async fn step(&self, _state: Picking, _cx: &Context) -> StepResult<Self> {
        Ok(Outcome::done(()))
    }
}
