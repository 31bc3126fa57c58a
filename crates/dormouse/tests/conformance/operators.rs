//! Operators who say why, and who act only on what they saw.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Cancel, CancelRequest, Receipt};
use dormouse::{Children, Error, EventKind, Instance, InstanceId, Json, Spawn, Status, Transition};
use serde_json::{Value, json};

use crate::kit::*;

suite![
    the_reason_of_a_cancel_is_kept_in_the_row_and_in_history,
    a_cancel_without_a_reason_tells_nothing,
    a_cancel_that_waits_for_its_running_step_keeps_its_first_reason,
    a_reason_outlives_the_worker_that_ran_the_step,
    descendants_tell_why_and_with_whom_they_were_cancelled,
    descendants_of_one_that_ran_tell_of_the_first_ancestor,
    a_retry_forgets_why_it_was_cancelled,
    a_reason_is_bounded_and_readable,
    who_waits_for_a_cancelled_instance_reads_the_reason,
    a_parent_reads_why_its_child_was_cancelled,
    operators_act_only_on_what_they_expected,
    of_two_operators_who_saw_the_same_one_acts,
    an_expected_seq_is_compared_before_the_status,
];

async fn the_reason_of_a_cancel_is_kept_in_the_row_and_in_history(kit: Kit) {
    let id = kit.insert(m()).await;
    let reason = "the customer \"called\"\n\tand it's over: é";
    let cancelled = kit.client().cancel(id).reason(reason).await.expect("a live instance");
    assert_eq!(cancelled, Cancel::Done { descendants: 0 });
    let row = kit.get(id).await;
    assert_eq!((row.cancel_reason.as_deref(), row.cancelled_with), (Some(reason), None));
    assert_eq!(last_data(&kit, id).await, json!({ "reason": reason }));
    let why = kit.client().explain(id).await.expect("a read");
    assert!(why.ends_with(&format!("it was cancelled: {reason}")), "{why}");
}

async fn a_cancel_without_a_reason_tells_nothing(kit: Kit) {
    let id = kit.insert(m()).await;
    kit.client().cancel(id).await.expect("a live instance");
    let row = kit.get(id).await;
    assert_eq!((row.cancel_reason, row.cancelled_with), (None, None));
    assert_eq!(last_data(&kit, id).await, Value::Null);
    let why = kit.client().explain(id).await.expect("a read");
    assert!(why.ends_with("it was cancelled"), "{why}");
}

async fn a_cancel_that_waits_for_its_running_step_keeps_its_first_reason(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let client = kit.client();
    for reason in ["first", "second"] {
        assert_eq!(client.cancel(id).reason(reason).await.expect("it runs"), Cancel::Requested);
        let row = kit.get(id).await;
        assert_eq!((row.status, row.cancel_reason.as_deref()), (Status::Executing, Some("first")));
    }
    let why = client.explain(id).await.expect("a read");
    assert!(why.ends_with("it will be cancelled when that ends: first"), "{why}");
    assert!(matches!(kit.commit(worker, commit(&claimed, next("end"))).await, Receipt::Cancelled));
    assert_eq!(kit.get(id).await.cancel_reason.as_deref(), Some("first"));
    assert_eq!(last_data(&kit, id).await, json!({ "reason": "first" }));
}

async fn a_reason_outlives_the_worker_that_ran_the_step(kit: Kit) {
    let mortal = kit.worker_with_lease("mortal", Duration::from_secs(1)).await;
    let id = kit.insert(m()).await;
    kit.claim_one(mortal).await;
    kit.client().cancel(id).reason("enough").await.expect("it runs");
    kit.advance(Duration::from_secs(2));
    kit.reap().await;
    assert_eq!(kit.get(id).await.cancel_reason.as_deref(), Some("enough"));
    assert_eq!(last_data(&kit, id).await, json!({ "reason": "enough" }));
}

async fn descendants_tell_why_and_with_whom_they_were_cancelled(kit: Kit) {
    let worker = kit.worker("w").await;
    let [root, child, leaf] = line(&kit, worker).await;
    let cancelled = kit.client().cancel(root).reason("closing time").await.expect("a live instance");
    assert_eq!(cancelled, Cancel::Done { descendants: 2 });
    assert_eq!(kit.get(root).await.cancelled_with, None);
    for id in [child, leaf] {
        let row = kit.get(id).await;
        assert_eq!((row.cancel_reason.as_deref(), row.cancelled_with), (Some("closing time"), Some(root)));
        assert_eq!(last_data(&kit, id).await, json!({ "reason": "closing time", "with": root.0 }));
        let why = kit.client().explain(id).await.expect("a read");
        assert!(why.ends_with(&format!("it was cancelled with instance {root}: closing time")), "{why}");
    }
}

async fn descendants_of_one_that_ran_tell_of_the_first_ancestor(kit: Kit) {
    let worker = kit.worker("w").await;
    let [root, child, leaf] = line(&kit, worker).await;
    // The child's deadline is over, and it runs when the root is cancelled.
    kit.advance(Duration::from_secs(60));
    kit.due().await;
    let runs = kit.claim(worker, 10).await.into_iter().find(|row| row.id == child).expect("it woke");
    kit.client().cancel(root).reason("fire").await.expect("a live instance");
    let row = kit.get(child).await;
    assert_eq!((row.status, row.cancelled_with), (Status::Executing, Some(root)));
    assert_eq!(kit.get(leaf).await.cancel_reason, None, "not before its parent's step ends");
    assert!(matches!(kit.commit(worker, commit(&runs, done())).await, Receipt::Cancelled));
    let told = |row: Instance| (row.cancel_reason, row.cancelled_with);
    assert_eq!(told(kit.get(child).await), (Some("fire".to_owned()), Some(root)));
    assert_eq!(told(kit.get(leaf).await), (Some("fire".to_owned()), Some(root)));
    assert_eq!(last_data(&kit, leaf).await, json!({ "reason": "fire", "with": root.0 }));
}

async fn a_retry_forgets_why_it_was_cancelled(kit: Kit) {
    let worker = kit.worker("w").await;
    let [root, child, _] = line(&kit, worker).await;
    kit.client().cancel(root).reason("by mistake").await.expect("a live instance");
    kit.client().retry(child).await.expect("it is cancelled");
    let row = kit.get(child).await;
    assert_eq!((row.cancel_reason, row.cancelled_with), (None, None));
    kit.client().cancel(child).await.expect("a live instance");
    assert_eq!(last_data(&kit, child).await, Value::Null, "nothing is left of the first reason");
}

async fn a_reason_is_bounded_and_readable(kit: Kit) {
    let id = kit.insert(m()).await;
    let before = kit.get(id).await;
    let long = "x".repeat(dormouse::REASON_BYTES_MAX + 1);
    for (reason, told) in
        [("", "empty"), (" \n", "empty"), (&long, "1,024"), ("a\0b", "control"), ("\u{1b}[2J", "control")]
    {
        let error = kit.client().cancel(id).reason(reason).await.expect_err("it is refused");
        assert!(matches!(error, Error::InvalidName { what: "reason", .. }), "{error}");
        assert!(error.to_string().contains(told), "{error}");
        assert_eq!(kit.get(id).await, before);
    }
    kit.client().cancel(id).reason(&long[1..]).await.expect("just as long as it may be");
}

async fn who_waits_for_a_cancelled_instance_reads_the_reason(kit: Kit) {
    let id = kit.insert(NewInstance::of::<Idle>(Idling::Wait)).await;
    kit.client().cancel(id).reason("no more").await.expect("a live instance");
    let error = kit.client().wait::<Idle>(id, SOON).await.expect_err("it has no output");
    assert_eq!(error.to_string(), format!("instance {id} is cancelled: no more"));
}

async fn a_parent_reads_why_its_child_was_cancelled(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let child = NewInstance::named("c", 1, at("start")).key("child");
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(vec![child], "join")))).await;
    kit.client().cancel("child").reason("not needed").await.expect("a live child");
    let woken = kit.claim_one(worker).await;
    assert_eq!(woken.id, parent);
    let child = &woken.children[0];
    assert_eq!((child.status, child.error.as_deref()), (Status::Cancelled, Some("not needed")));
}

async fn operators_act_only_on_what_they_expected(kit: Kit) {
    let client = kit.client();
    let live = kit.insert(m()).await;
    let ended = kit.insert(m().key("ended")).await;
    client.cancel(ended).await.expect("a live instance");
    let before = (kit.get(live).await, kit.get(ended).await);
    let stale = |error: Error, id: InstanceId, actual: u64| {
        let told =
            matches!(error, Error::StaleSeq { id: of, expected: 7, actual: at } if (of, at) == (id, actual));
        assert!(told, "{error}");
    };
    stale(client.cancel(live).reason("x").expected_seq(7).await.expect_err("moved"), live, 1);
    stale(client.pause(live).expected_seq(7).await.expect_err("moved"), live, 1);
    stale(client.resume(live).expected_seq(7).await.expect_err("moved"), live, 1);
    stale(client.retry("ended").expected_seq(7).await.expect_err("moved"), ended, 2);
    let elsewhere = client.retry_raw(ended, at("elsewhere")).expected_seq(7);
    stale(elsewhere.await.expect_err("moved"), ended, 2);
    assert!(client.cancel(live).expected_seq(u64::MAX).await.is_err(), "no instance ever was there");
    assert_eq!((kit.get(live).await, kit.get(ended).await), before, "nothing was changed");

    client.pause(live).expected_seq(1).await.expect("as it was seen");
    client.resume(live).expected_seq(1).await.expect("the brake is no transition");
    client.cancel(live).expected_seq(1).await.expect("as it was seen");
    client.retry_raw(ended, at("elsewhere")).expected_seq(2).await.expect("as it was seen");
    assert_eq!((kit.status(live).await, kit.status(ended).await), (Status::Cancelled, Status::Runnable));
}

async fn of_two_operators_who_saw_the_same_one_acts(kit: Kit) {
    let id = kit.insert(m()).await;
    kit.client().cancel(id).await.expect("a live instance");
    let seen = kit.get(id).await.seq;
    let client = kit.client();
    let retry = || async { client.retry(id).expected_seq(seen).await };
    let (one, other) = tokio::join!(retry(), retry());
    let refused = match (one, other) {
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => error,
        both => panic!("one of them acts: {both:?}"),
    };
    assert!(matches!(refused, Error::StaleSeq { actual, .. } if actual == seen + 1), "{refused}");
    assert_eq!(kit.story(id).await, [EventKind::Created, EventKind::Cancelled, EventKind::Retried]);
}

async fn an_expected_seq_is_compared_before_the_status(kit: Kit) {
    let id = kit.insert(m()).await;
    let client = kit.client();
    client.cancel(id).await.expect("a live instance");
    let again = client.cancel(id).expected_seq(1).await.expect_err("it has ended since");
    assert!(matches!(again, Error::StaleSeq { actual: 2, .. }), "{again}");
    let again = client.cancel(id).expected_seq(2).await.expect("an answer");
    assert_eq!(again, Cancel::AlreadyEnded(Status::Cancelled));
    let request = CancelRequest { reason: None, expected_seq: Some(1) };
    let nobody = kit.store.cancel("default".to_owned(), InstanceId(999).into(), request).await;
    assert!(matches!(nobody, Err(Error::NotFound(_))));
}

/// A root, its child and that one's child, each parked on the next; the leaf runs at some time far away.
async fn line(kit: &Kit, worker: dormouse::WorkerId) -> [InstanceId; 3] {
    let root = kit.insert(m()).await;
    let mut ids = vec![root];
    for (depth, far) in [(1, Duration::ZERO), (2, Duration::from_secs(9_999))] {
        let claimed = kit.claim_one(worker).await;
        assert_eq!(Some(&claimed.id), ids.last());
        let child = m().key(format!("depth-{depth}")).start_at(far);
        let timeout = (depth == 2).then(|| Duration::from_secs(60).into());
        let spawned = Spawn { timeout, on_cancel: Children::Cancel, ..spawn(vec![child], "join") };
        kit.commit(worker, commit(&claimed, Transition::Spawn(spawned))).await;
        let child = kit.client().get(format!("depth-{depth}").as_str()).await.expect("a read");
        ids.push(child.expect("it was spawned").id);
    }
    ids.try_into().expect("three of them")
}

/// The data of an instance's last event.
async fn last_data(kit: &Kit, id: InstanceId) -> Value {
    let event = kit.history(id).await.pop().expect("an event");
    assert_eq!(event.kind, EventKind::Cancelled);
    event.data.unwrap_or_else(Json::null).decode("data").expect("it is JSON")
}

struct Idle;

#[derive(Serialize, Deserialize)]
enum Idling {
    Wait,
}

impl Machine for Idle {
    const NAME: &'static str = "idle";
    type State = Idling;
    type Output = ();

    async fn step(&self, Idling::Wait: Idling, _cx: &Context) -> StepResult<Self> {
        Ok(Outcome::done(()))
    }
}
