//! `attempt` counts the tries of one step, and goes back to zero when the step progresses.

use std::time::Duration;

use dormouse::store::{Claimed, Commit, Hold, Receipt};
use dormouse::{
    Ask, Dispatch, INTERACTION_API, Json, NewInstance, OnFailure, Shape, Status, Transition, WorkerId,
};

use crate::kit::*;

suite![
    a_replayed_step_that_progresses_starts_counting_anew,
    a_reaped_step_that_progresses_starts_counting_anew,
    an_end_keeps_the_tries_that_it_took,
    a_step_that_runs_ahead_after_tries_starts_counting_anew,
];

/// Every outcome by which a step progresses, and where it leads.
fn progress() -> Vec<(Transition, Status)> {
    let minute = Duration::from_secs(60);
    let child = NewInstance::named("c", 1, at("start"));
    vec![
        (next("end"), Status::Runnable),
        (sleep("end", minute), Status::Scheduled),
        (wait_for(&["go"], "end"), Status::AwaitingSignal),
        (wait_until(&["go"], "end", minute), Status::AwaitingSignal),
        (Transition::Spawn(spawn(vec![child], "end")), Status::AwaitingChildren),
        (Transition::Spawn(spawn(vec![], "end")), Status::Runnable),
        (Transition::Dispatch(dispatch(1)), Status::AwaitingCompletion),
        (Transition::Dispatch(dispatch(0)), Status::Runnable),
    ]
}

async fn a_replayed_step_that_progresses_starts_counting_anew(kit: Kit) {
    let worker = kit.worker("w").await;
    for (outcome, status) in progress() {
        let claimed = tried_twice(&kit, worker).await;
        assert_eq!(claimed.attempt, 2);
        progresses(&kit, worker, &claimed, outcome, status).await;
    }
}

async fn a_reaped_step_that_progresses_starts_counting_anew(kit: Kit) {
    let worker = kit.worker("w").await;
    for (outcome, status) in progress() {
        let id = kit.insert(m()).await;
        let mortal = kit.worker_with_lease("mortal", Duration::from_secs(1)).await;
        assert_eq!(kit.claim_one(mortal).await.id, id);
        kit.advance(Duration::from_secs(2));
        assert_eq!(kit.reap().await, 1);
        let claimed = kit.claim_one(worker).await;
        assert_eq!((claimed.id, claimed.attempt), (id, 1));
        progresses(&kit, worker, &claimed, outcome, status).await;
    }
}

async fn an_end_keeps_the_tries_that_it_took(kit: Kit) {
    let worker = kit.worker("w").await;
    for end in [done(), fail("boom")] {
        let claimed = tried_twice(&kit, worker).await;
        kit.commit(worker, commit(&claimed, end)).await;
        assert_eq!(kit.get(claimed.id).await.attempt, 2);
    }
}

async fn a_step_that_runs_ahead_after_tries_starts_counting_anew(kit: Kit) {
    let worker = kit.worker("w").await;
    let claimed = tried_twice(&kit, worker).await;
    let ahead = Commit { hold: Hold::Keep, ..commit(&claimed, next("end")) };
    assert!(matches!(kit.commit(worker, ahead).await, Receipt::Held { .. }));
    let row = kit.get(claimed.id).await;
    assert_eq!((row.status, row.attempt, row.last_error), (Status::Executing, 0, None));
}

/// An instance whose step was replayed twice, the second time with an error, and runs again.
async fn tried_twice(kit: &Kit, worker: WorkerId) -> Claimed {
    let id = kit.insert(m()).await;
    for error in [None, Some("it \"broke\"".to_owned())] {
        let claimed = kit.claim_one(worker).await;
        assert_eq!(claimed.id, id);
        let again = Transition::Replay { at: at("start"), delay: Duration::ZERO, error };
        kit.commit(worker, commit(&claimed, again)).await;
    }
    kit.claim_one(worker).await
}

/// Commits an outcome and looks at the count; then clears the instance away.
async fn progresses(kit: &Kit, worker: WorkerId, claimed: &Claimed, outcome: Transition, status: Status) {
    let told = format!("{outcome:?}");
    assert!(matches!(kit.commit(worker, commit(claimed, outcome)).await, Receipt::Released), "{told}");
    let row = kit.get(claimed.id).await;
    assert_eq!((row.status, row.attempt, row.last_error), (status, 0, None), "{told}");
    if status == Status::Runnable {
        let again = kit.claim_one(worker).await;
        assert_eq!((again.id, again.attempt), (claimed.id, 0), "{told}");
        kit.commit(worker, commit(&again, done())).await;
    } else {
        kit.client().cancel(claimed.id).await.expect("it is live");
    }
}

fn dispatch(asks: usize) -> Dispatch {
    let ask = |item: usize| Ask {
        request: Json::null(),
        idempotency_key: format!("key-{item}"),
        correlation_id: None,
        for_assignee: None,
        for_group: None,
    };
    Dispatch {
        at: at("end"),
        shape: Shape::Each,
        asks: (0..asks).map(ask).collect(),
        items: asks,
        transport: INTERACTION_API.to_owned(),
        timeout: None,
        item_timeout: None,
        in_flight: None,
        on_failure: OnFailure::Report,
        quorum: None,
        outputs_max: 10,
    }
}
