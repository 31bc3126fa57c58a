//! Steps that take their worker along: how often they are tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::store::Tried;
use dormouse::{EventKind, InstanceId, NewInstance, Status, Transition, Wake};

use crate::kit::*;
use crate::slow::Slow;

suite![
    a_step_that_is_lost_with_its_worker_again_and_again_fails_its_instance,
    rows_that_crash_together_again_rest_each_for_another_time_and_keep_their_inputs,
    a_commit_between_crashes_starts_the_count_anew,
    what_is_given_back_did_not_crash,
    a_retry_after_too_many_crashes_starts_the_count_anew,
    a_child_that_fails_by_crashes_takes_one_off_its_parents_barrier,
    a_shutdown_that_cuts_a_step_short_is_no_crash,
];

const CRASHES_MAX: u32 = 3;

/// Claims an instance with a worker that then dies. If it crashed before, its rest is over.
async fn crash(kit: &Kit, machine: &str, id: InstanceId) {
    kit.advance(Duration::from_secs(1));
    kit.due().await;
    let worker = kit.worker_with_lease("doomed", Duration::from_secs(1)).await;
    let claimed = kit.claim_from(worker, "default", &[(machine, 1)], 1).await;
    assert_eq!(claimed[0].id, id);
    kit.advance(Duration::from_secs(2));
    assert_eq!(kit.store.reap(1000, CRASHES_MAX).await.expect("a sweep").value, 1);
}

async fn a_step_that_is_lost_with_its_worker_again_and_again_fails_its_instance(kit: Kit) {
    let id = kit.insert(m().lane("l")).await;
    for (crashes, status) in (1..CRASHES_MAX).zip([Status::Runnable, Status::Scheduled]) {
        crash(&kit, "m", id).await;
        let back = kit.get(id).await;
        assert_eq!((back.status, back.attempt), (status, crashes));
    }
    kit.advance(Duration::from_secs(1));
    kit.due().await;
    let behind = kit.insert(m().lane("l")).await;
    crash(&kit, "m", id).await;
    let failed = kit.get(id).await;
    assert_eq!((failed.status, failed.worker), (Status::Failed, None));
    let reason = failed.last_error.expect("a reason");
    assert!(reason.contains("3 times in a row while step \"start\" ran"), "{reason}");
    use EventKind::*;
    assert_eq!(kit.story(id).await, [Created, Reaped, Reaped, TimerFired, Reaped, Failed]);
    kit.check_counts("the last crash").await;
    let worker = kit.worker("w").await;
    assert_eq!(kit.claim_one(worker).await.id, behind, "its lane is free");
}

/// Only one of them kills its worker. Were all of them claimed together again each time, all of them would fail with it.
async fn rows_that_crash_together_again_rest_each_for_another_time_and_keep_their_inputs(kit: Kit) {
    let ids = [kit.insert(m()).await, kit.insert(m()).await, kit.insert(m()).await];
    let worker = kit.worker("w").await;
    let commits =
        kit.claim(worker, 3).await.iter().map(|row| commit(row, wait_for(&["paid"], "ship"))).collect();
    kit.commit_many(worker, commits).await;
    for id in ids {
        kit.deliver(id, signal("paid")).await;
    }
    for status in [Status::Runnable, Status::Scheduled] {
        let doomed = kit.worker_with_lease("doomed", Duration::from_secs(1)).await;
        assert_eq!(kit.claim(doomed, 3).await.len(), 3);
        kit.advance(Duration::from_secs(2));
        assert_eq!(kit.store.reap(1000, 10).await.expect("a sweep").value, 3);
        for id in ids {
            assert_eq!(kit.status(id).await, status);
        }
    }
    let mut moments = Vec::new();
    for id in ids {
        moments.push(kit.get(id).await.wake_at.expect("it rests"));
    }
    moments.dedup();
    assert_eq!(moments.len(), 3, "no two run again at one moment");
    assert!(moments.iter().all(|at| *at > kit.now()), "and none at once");
    kit.advance(Duration::from_secs(1));
    assert_eq!(kit.due().await, 3);
    let claimed = kit.claim(kit.worker("w").await, 3).await;
    assert!(claimed.len() == 3 && claimed.iter().all(|row| row.wake == Some(Wake::Signal)));
    assert!(claimed.iter().all(|row| received(row).len() == 1), "each has what it was woken by");
}

async fn a_commit_between_crashes_starts_the_count_anew(kit: Kit) {
    let id = kit.insert(m()).await;
    for _ in 0..3 {
        crash(&kit, "m", id).await;
        crash(&kit, "m", id).await;
        kit.advance(Duration::from_secs(1));
        kit.due().await;
        let worker = kit.worker("w").await;
        let claimed = kit.claim_one(worker).await;
        kit.commit(worker, commit(&claimed, replay("start", Duration::ZERO))).await;
    }
    assert_eq!(kit.status(id).await, Status::Runnable, "the step did end between them");
}

async fn what_is_given_back_did_not_crash(kit: Kit) {
    let id = kit.insert(m()).await;
    crash(&kit, "m", id).await;
    let worker = kit.worker("w").await;
    for tried in [Tried::Yes, Tried::No, Tried::Yes, Tried::Yes, Tried::No] {
        let claimed = kit.claim_one(worker).await;
        kit.store.release(worker, vec![(id, claimed.seq)], tried).await.expect("a write");
    }
    crash(&kit, "m", id).await;
    let back = kit.get(id).await;
    assert_eq!((back.status, back.attempt), (Status::Scheduled, 5));
    crash(&kit, "m", id).await;
    assert_eq!(kit.status(id).await, Status::Failed, "giving back does not hide the crashes around it");
}

async fn a_retry_after_too_many_crashes_starts_the_count_anew(kit: Kit) {
    let id = kit.insert(m()).await;
    for _ in 0..CRASHES_MAX {
        crash(&kit, "m", id).await;
    }
    assert_eq!(kit.status(id).await, Status::Failed);
    kit.client().retry(id).await.expect("it has failed");
    crash(&kit, "m", id).await;
    assert_eq!(kit.status(id).await, Status::Runnable);
}

async fn a_child_that_fails_by_crashes_takes_one_off_its_parents_barrier(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let child = NewInstance::named("c", 1, at("start"));
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(vec![child], "join")))).await;
    let child = InstanceId(parent.0 + 1);
    for _ in 0..CRASHES_MAX {
        crash(&kit, "c", child).await;
    }
    assert_eq!(kit.status(child).await, Status::Failed);
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.children[0].status), (parent, Status::Failed));
}

async fn a_shutdown_that_cuts_a_step_short_is_no_crash(kit: Kit) {
    let runs = Arc::new(AtomicUsize::new(0));
    let id = kit.insert(m()).await;
    for run in 1..=4 {
        let counted = runs.clone();
        let machine = Slow::new(move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::pending()
        });
        let engine = kit.engine().dyn_machine(machine.machine()).drain(Duration::ZERO).crashes_max(1);
        let engine = engine.start().await.expect("the engine starts");
        kit.until(id, Status::Executing).await;
        while runs.load(Ordering::SeqCst) < run {
            tokio::task::yield_now().await;
        }
        engine.shutdown().await;
        let back = kit.get(id).await;
        assert_eq!((back.status, back.attempt as usize), (Status::Runnable, run), "it is tried again");
    }
}
