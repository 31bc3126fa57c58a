//! What a parent sees of its children, and a child of its parent.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::Filter;
use dormouse::{Error, Json, KeyScope, ParentRef, Spawn, Status, Transition};
use serde_json::{Value, json};

use crate::kit::*;

suite![
    a_parent_sees_how_far_each_child_got,
    the_state_of_a_child_comes_in_its_own_type,
    a_retried_parent_sees_how_far_its_cancelled_children_had_got,
    a_child_knows_its_parent_and_its_place_in_the_list,
    a_child_that_is_dropped_leaves_its_place_free,
    a_step_knows_its_parent_and_its_place,
    roots_are_listed_without_their_descendants,
    a_child_whose_parent_was_collected_still_wakes_and_is_still_reaped,
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
    kit.commit(worker, commit(&claimed[0], Transition::Next { at: middle(), ahead: true })).await;
    kit.commit(worker, commit(&claimed[1], Transition::Next { at: middle(), ahead: true })).await;
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

async fn a_child_knows_its_parent_and_its_place_in_the_list(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m().priority(-1)).await;
    let root = kit.claim_one(worker).await;
    assert_eq!(root.parent, None);
    let row = kit.get(parent).await;
    assert_eq!((row.parent, row.parent_round, row.parent_index), (None, None, None));
    kit.commit(worker, commit(&root, Transition::Spawn(spawn(vec![child(); 2], "again")))).await;
    for claimed in kit.claim_from(worker, "default", &[("c", 1)], 2).await {
        kit.commit(worker, commit(&claimed, done())).await;
    }
    let woken = kit.claim_one(worker).await;
    // The second round counts anew; the last of the list is the first to run.
    let children = (0..3).map(|n| child().priority(-n)).collect();
    kit.commit(worker, commit(&woken, Transition::Spawn(spawn(children, "join")))).await;
    let claimed = kit.claim_from(worker, "default", &[("c", 1)], 3).await;
    let place = |index| Some(ParentRef { id: parent, round: 2, index });
    assert_eq!(claimed.iter().map(|row| row.parent).collect::<Vec<_>>(), [place(2), place(1), place(0)]);
    let row = kit.get(claimed[0].id).await;
    assert_eq!((row.parent, row.parent_round, row.parent_index), (Some(parent), Some(2), Some(2)));
}

async fn a_child_that_is_dropped_leaves_its_place_free(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert(NewInstance::named("elsewhere", 1, at("start")).key("taken")).await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let list = [None, Some("taken"), Some("free"), Some("free"), None];
    let children = list.map(|key: Option<&str>| key.into_iter().fold(child(), NewInstance::key));
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(children.into(), "join")))).await;
    let claimed = kit.claim_from(worker, "default", &[("c", 1)], 5).await;
    let places: Vec<_> = claimed.iter().map(|row| row.parent.expect("a child").index).collect();
    assert_eq!(places, [0, 2, 4]);
    for child in &claimed {
        kit.commit(worker, commit(child, done())).await;
    }
    let woken = kit.claim_one(worker).await;
    let seen: Vec<_> = woken.children.iter().map(|child| child.index).collect();
    assert_eq!((woken.id, seen), (parent, vec![0, 2, 4]));
}

async fn a_step_knows_its_parent_and_its_place(kit: Kit) {
    let parent = Script::named("m", |at, cx| {
        assert_eq!((cx.parent(), cx.index()), (None, None));
        Ok(match at.step.as_ref() {
            "start" => Transition::Spawn(spawn(vec![child(); 3], "join")),
            _ => Transition::Done { output: Json::from(json!(cx.outputs::<Value>().expect("outputs"))) },
        })
    });
    // The second step runs ahead on the same claim, and knows as much.
    let child = Script::named("c", |at, cx| {
        let told = || json!([cx.parent(), cx.index()]);
        Ok(match at.step.as_ref() {
            "start" => Transition::Next { at: at_with("end", told()), ahead: true },
            _ => {
                let before: Value = at.state.decode("state").expect("it is JSON");
                assert_eq!(before, told());
                Transition::Done { output: Json::from(before) }
            }
        })
    });
    let engine = kit.engine().dyn_machine(parent).dyn_machine(child).start().await.expect("it starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    let output = kit.until(id, Status::Done).await.output.expect("an output");
    let told: Value = output.decode("output").expect("it is JSON");
    let place = |index: u32| json!([{ "id": id.0, "round": 1, "index": index }, index]);
    assert_eq!(told, json!([place(0), place(1), place(2)]));
    engine.shutdown().await;
}

async fn roots_are_listed_without_their_descendants(kit: Kit) {
    let worker = kit.worker("w").await;
    let first = kit.insert(m().key("a").priority(-1)).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(vec![child().key("ab"); 1], "join")))).await;
    let failed = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, fail("boom"))).await;
    let waits = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "end"))).await;
    let child = kit.claim_from(worker, "default", &[("c", 1)], 1).await.remove(0);
    kit.commit(worker, commit(&child, wait_for(&["go"], "end"))).await;
    let list = async |filter: Filter| {
        let found = kit.list(Filter { roots: true, ..filter }).await;
        found.into_iter().map(|instance| instance.id).collect::<Vec<_>>()
    };
    let namespace = Some("default".to_owned());
    assert_eq!(list(Filter::default()).await, [waits, failed, first]);
    assert_eq!(list(Filter { status: Some(Status::Failed), ..Filter::default() }).await, [failed]);
    assert_eq!(list(Filter { awaiting: Some("go".to_owned()), ..Filter::default() }).await, [waits]);
    let by_key = Filter { key_prefix: Some("a".to_owned()), namespace, ..Filter::default() };
    assert_eq!(list(by_key.clone()).await, [first]);
    assert_eq!(kit.list(by_key).await.len(), 2, "the child is there if it is asked for");
    assert!(
        list(Filter { parent: Some(first), ..Filter::default() }).await.is_empty(),
        "a root has no parent"
    );
    // A page goes over children without counting them.
    let page = Filter { roots: true, limit: 2, ..Filter::default() };
    let page = kit.store.list(page).await.expect("a read");
    assert_eq!(page.instances.iter().map(|row| row.id).collect::<Vec<_>>(), [waits, failed]);
    let rest = Filter { roots: true, limit: 2, after: page.next, ..Filter::default() };
    let rest = kit.store.list(rest).await.expect("a read");
    assert_eq!((rest.instances.len(), rest.next), (1, None));
}

/// A key that counts in some statuses only lets a child fail as it wakes, which its parent must hear of.
async fn a_child_whose_parent_was_collected_still_wakes_and_is_still_reaped(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert(m()).await;
    let scope = KeyScope::In(vec![Status::Runnable]);
    let later = child().key("k").key_scope(scope).start_at(Duration::from_secs(60));
    let timeout = Some(Duration::from_secs(1).into());
    let spawned = Spawn { timeout, ..spawn(vec![later], "join") };
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawned))).await;
    kit.advance(Duration::from_secs(1));
    assert_eq!(kit.due().await, 1);
    let parent = kit.claim_one(worker).await;
    kit.commit(worker, commit(&parent, done())).await;
    assert_eq!(kit.client().collect(Duration::ZERO).await.expect("a write").instances, 1);

    kit.advance(Duration::from_secs(60));
    assert_eq!(kit.due().await, 1, "it wakes without its parent");
    let mortal = kit.worker_with_lease("mortal", Duration::from_secs(1)).await;
    let claimed = kit.claim_from(mortal, "default", &[("c", 1)], 1).await;
    assert_eq!(claimed.len(), 1);
    kit.advance(Duration::from_secs(2));
    assert_eq!(kit.reap().await, 1, "it is taken back without its parent");
    let claimed = kit.claim_from(worker, "default", &[("c", 1)], 1).await;
    kit.commit(worker, commit(&claimed[0], done())).await;
    assert_eq!(kit.status(claimed[0].id).await, Status::Done);
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
