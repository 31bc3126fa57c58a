//! Units and what happens to their instances: cancel, retry, pause, fork, collect, rivals.

use std::sync::Arc;
use std::time::Duration;

use dormouse::store::{Cancel, Completed, Refusal, SendOutcome, SendReport};
use dormouse::{Dispatch, EventKind, KeyScope, Status, Transition, UnitStatus, Wake};

use super::kit::*;
use crate::kit::*;

suite![
    cancelling_an_instance_cancels_its_unit,
    cancelling_a_parent_cancels_the_units_of_its_children,
    a_retried_instance_sees_what_had_been_answered,
    an_instance_retried_elsewhere_sees_no_unit,
    a_paused_instance_takes_answers_and_runs_when_resumed,
    a_fork_takes_no_unit_along,
    a_unit_goes_with_its_instance,
    an_instance_that_may_not_park_lets_its_unit_go,
    an_instance_explains_that_it_waits_for_answers,
    answers_wake_an_instance_in_its_lane,
    answers_deadlines_sends_and_cancels_at_once_close_each_unit_once,
];

async fn cancelling_an_instance_cancels_its_unit(kit: Kit) {
    let worker = kit.worker("w").await;
    let hour = Duration::from_secs(3600);
    let id = parked(&kit, worker, Dispatch { timeout: Some(hour.into()), ..each(&["a", "b"]) }).await;
    complete(&kit, items(&kit, id).await[0].id, 0).await;
    assert_eq!(kit.client().cancel(id).await.expect("a cancel"), Cancel::Done { descendants: 0 });
    assert_eq!(unit(&kit, id).await.status, UnitStatus::Cancelled);
    assert_eq!(verdicts(&kit, id).await, ["completed 0", "cancelled"]);
    let story = kit.story(id).await;
    assert_eq!(story[3..], [EventKind::UnitCancelled, EventKind::Cancelled]);
    kit.advance(hour);
    assert_eq!(kit.due().await, 0, "its deadline is gone with it");
}

async fn cancelling_a_parent_cancels_the_units_of_its_children(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(vec![m()], "join")))).await;
    let child = kit.claim_one(worker).await;
    kit.commit(worker, commit(&child, Transition::Dispatch(one("a")))).await;
    kit.client().cancel(parent).reason("too late").await.expect("a cancel");
    assert_eq!(unit(&kit, child.id).await.status, UnitStatus::Cancelled);
    assert_eq!(kit.story(child.id).await[2..], [EventKind::UnitCancelled, EventKind::Cancelled]);
    let told = kit.history(child.id).await.pop().and_then(|event| event.data).expect("it tells why");
    let told: serde_json::Value = told.decode("data").expect("it is JSON");
    assert_eq!(told, serde_json::json!({ "reason": "too late", "with": parent.0 }));
}

async fn a_retried_instance_sees_what_had_been_answered(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, each(&["a", "b"])).await;
    let items = items(&kit, id).await;
    complete(&kit, items[0].id, 0).await;
    kit.client().cancel(id).await.expect("a cancel");
    kit.client().retry(id).await.expect("a retry");
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.at.step.as_ref(), woken.wake), ("answered", Some(Wake::Unit)));
    assert_eq!(verdicts(&kit, id).await, ["completed 0", "cancelled"]);
    assert_eq!(complete(&kit, items[1].id, 1).await, Completed::Refused(Refusal::Cancelled));
}

async fn an_instance_retried_elsewhere_sees_no_unit(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    kit.client().cancel(id).await.expect("a cancel");
    kit.client().retry_raw(id, at("start")).await.expect("a retry");
    assert_eq!(kit.claim_one(worker).await.wake, None);
    assert_eq!(kit.store.unit(id).await.expect("a read"), None);
}

async fn a_paused_instance_takes_answers_and_runs_when_resumed(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    kit.client().pause(id).await.expect("a pause");
    let item = items(&kit, id).await.remove(0).id;
    assert_eq!(complete(&kit, item, 7).await, Completed::Admitted { woke: true });
    assert!(kit.claim(worker, 1).await.is_empty());
    kit.client().resume(id).await.expect("a resume");
    assert_eq!(kit.claim_one(worker).await.wake, Some(Wake::Unit));
    assert_eq!(verdicts(&kit, id).await, ["completed 7"]);
}

async fn a_fork_takes_no_unit_along(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    let opened = kit.get(id).await.seq;
    let fork = kit.client().fork(id, opened, |new| new).await.expect("a fork");
    let row = kit.get(fork).await;
    assert_eq!((row.status, row.step.as_str()), (Status::Runnable, "answered"));
    assert_eq!(kit.store.unit(fork).await.expect("a read"), None);
    assert_eq!(pending(&kit).await.len(), 1, "what was asked is asked once");
}

async fn a_unit_goes_with_its_instance(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    let (unit, item) = (unit(&kit, id).await.id, items(&kit, id).await.remove(0).id);
    complete(&kit, item, 7).await;
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, done())).await;
    kit.advance(Duration::from_secs(2));
    assert_eq!(kit.client().collect(Duration::from_secs(1)).await.expect("a collection").instances, 1);
    assert!(kit.store.items(unit, 0, 10).await.expect("a read").is_empty());
    assert_eq!(complete(&kit, item, 7).await, Completed::Refused(Refusal::Unknown));
}

async fn an_instance_that_may_not_park_lets_its_unit_go(kit: Kit) {
    let worker = kit.worker("w").await;
    let rival = |status: Status| m().key("k").key_scope(KeyScope::In(vec![status]));
    let holder = kit.insert(rival(Status::Runnable)).await;
    let id = kit.insert(rival(Status::AwaitingCompletion).priority(-1)).await;
    let claimed = kit.claim_one(worker).await;
    assert_eq!(claimed.id, id);
    kit.commit(worker, commit(&claimed, Transition::Dispatch(one("a")))).await;
    assert_eq!(kit.status(id).await, Status::Failed);
    assert_eq!(kit.status(holder).await, Status::Runnable);
    assert_eq!(unit(&kit, id).await.status, UnitStatus::Cancelled);
    assert_eq!(verdicts(&kit, id).await, ["cancelled"]);
    assert!(pending(&kit).await.is_empty());
    assert_eq!(kit.story(id).await[1..], [EventKind::UnitOpened, EventKind::Failed]);
}

async fn an_instance_explains_that_it_waits_for_answers(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, each(&["a", "b"])).await;
    let told = kit.client().explain(id).await.expect("a read");
    assert!(told.contains("it is parked on a unit: 2 answers still to come; interaction "), "{told}");
    complete(&kit, items(&kit, id).await[0].id, 0).await;
    let told = kit.client().explain(id).await.expect("a read");
    assert!(told.contains("it is parked on a unit: 1 answer still to come; interaction "), "{told}");
}

async fn answers_wake_an_instance_in_its_lane(kit: Kit) {
    let worker = kit.worker("w").await;
    let first = kit.insert(m().lane("l")).await;
    let claimed = kit.claim_one(worker).await;
    let second = kit.insert(m().lane("l")).await;
    kit.commit(worker, commit(&claimed, Transition::Dispatch(one("a")))).await;
    let held = kit.claim_one(worker).await;
    assert_eq!(held.id, second, "a park lets go of the lane");
    complete(&kit, items(&kit, first).await[0].id, 1).await;
    assert!(kit.get(first).await.lane_blocked);
    kit.commit(worker, commit(&held, done())).await;
    assert_eq!(kit.claim_one(worker).await.id, first);
}

async fn answers_deadlines_sends_and_cancels_at_once_close_each_unit_once(kit: Kit) {
    const INSTANCES: usize = 12;
    let worker = kit.worker("w").await;
    let minute = Duration::from_secs(60);
    let mut parked_ones = Vec::new();
    for n in 0..INSTANCES {
        let dispatch = Dispatch {
            transport: "bank".to_owned(),
            in_flight: Some(3),
            item_timeout: (n % 3 == 0).then_some(minute),
            timeout: (n % 3 == 1).then_some(minute.into()),
            ..each(&["a", "b", "c", "d"])
        };
        parked_ones.push(parked(&kit, worker, dispatch).await);
    }
    kit.advance(minute);
    let kit = Arc::new(kit);
    let mut tasks = tokio::task::JoinSet::new();
    for from in 0..4 {
        let (kit, ids) = (kit.clone(), parked_ones.clone());
        // Each in another order, in batches that meet.
        tasks.spawn(async move {
            for round in 0..6 {
                let mut batch = Vec::new();
                for turn in 0..ids.len() {
                    let id = ids[(turn * (2 * from + 1) + round) % ids.len()];
                    let Some(unit) = kit.store.unit(id).await.expect("a read") else { continue };
                    let items = kit.store.items(unit.id, 0, 10).await.expect("a read");
                    batch.extend(items.iter().map(|item| completion(item.id, item.item)));
                }
                // What another of them holds at this moment is sent again.
                while !batch.is_empty() {
                    let answers = kit.store.complete(batch.clone()).await.expect("answers").value;
                    let told = batch.into_iter().zip(answers);
                    let busy = told.filter(|(_, answer)| *answer == Completed::Refused(Refusal::Busy));
                    batch = busy.map(|(completion, _)| completion).collect();
                }
            }
        });
    }
    let (clock, sender, canceller) = (kit.clone(), kit.clone(), kit.clone());
    tasks.spawn(async move {
        for _ in 0..20 {
            clock.store.due(3).await.expect("a sweep");
        }
    });
    tasks.spawn(async move {
        for _ in 0..20 {
            let namespaces = dormouse::store::Namespaces::All;
            let taken =
                sender.store.outbox("bank".to_owned(), namespaces, 5, Duration::ZERO).await.expect("a take");
            let sent = taken.taken.iter().map(|taken| SendReport {
                id: taken.id,
                sends: taken.sends,
                outcome: SendOutcome::Sent,
            });
            sender.store.sent(sent.collect()).await.expect("a report");
        }
    });
    let cancelled = parked_ones.clone();
    tasks.spawn(async move {
        for id in cancelled.iter().step_by(4) {
            canceller.client().cancel(*id).await.expect("a cancel");
        }
    });
    while let Some(task) = tasks.join_next().await {
        task.expect("no task fails");
    }
    // Answers after a deadline are late, and a sweep leaves out what somebody holds: the clock closes the rest.
    while kit.due().await > 0 {}
    // What has its place in flight only since then is answered.
    for id in &parked_ones {
        let open: Vec<_> = items(&kit, *id).await.into_iter().filter(|item| item.status.is_open()).collect();
        let answers = open.iter().map(|item| completion(item.id, item.item)).collect();
        kit.store.complete(answers).await.expect("answers");
    }
    for id in parked_ones {
        let closings = [
            EventKind::UnitCompleted,
            EventKind::UnitTimedOut,
            EventKind::UnitFailed,
            EventKind::UnitCancelled,
        ];
        let story = kit.story(id).await;
        assert_eq!(story.iter().filter(|kind| closings.contains(kind)).count(), 1, "{story:?}");
        assert_ne!(unit(&kit, id).await.status, UnitStatus::Open);
        assert!(items(&kit, id).await.iter().all(|item| !item.status.is_open()));
    }
}
