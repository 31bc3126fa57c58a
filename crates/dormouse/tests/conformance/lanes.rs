//! Lanes: the steps of a lane run one at a time, in order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::store::{Claim, Hold, Namespaces, Receipt, Turns};
use dormouse::{InstanceId, NewInstance, Status, Transition, WorkerId};

use crate::kit::*;

suite![
    eight_workers_on_one_hot_lane_never_run_two_at_once_and_keep_its_order,
    eight_engines_on_one_hot_lane_never_run_two_at_once_and_keep_its_order,
    a_batch_claim_takes_one_of_a_lane,
    one_that_arrives_while_the_lane_is_held_waits_for_it,
    a_lane_whose_holder_died_goes_on_with_it_and_then_with_the_next,
    a_worker_whose_lease_is_over_cannot_take_a_lane_that_nobody_would_free,
    every_outcome_that_lets_go_hands_the_lane_to_the_next,
    a_next_keeps_the_lane_and_its_place,
    a_holder_cancelled_before_it_ran_hands_the_lane_on,
    a_holder_cancelled_while_it_runs_hands_the_lane_on_when_its_step_ends,
    a_paused_holder_hands_the_lane_on_and_enters_it_again_when_resumed,
    a_holder_paused_while_it_runs_hands_the_lane_on_after_its_step,
    a_paused_one_in_line_is_passed_over,
    one_that_arrives_behind_a_paused_one_runs,
    one_that_wakes_waits_for_the_lane,
    one_that_wakes_from_a_sleep_waits_for_the_lane,
    a_retried_one_waits_for_the_lane,
    priorities_order_the_lane,
    a_delayed_start_does_not_hold_the_lane,
    other_lanes_and_those_without_one_go_on,
    a_lane_runs_across_queues_and_machines,
    of_those_inserted_together_the_lanes_order_decides_who_is_first,
    of_those_that_wake_together_the_lanes_order_decides_who_is_first,
];

async fn eight_workers_on_one_hot_lane_never_run_two_at_once_and_keep_its_order(kit: Kit) {
    const ROWS: usize = 120;
    let expected: Vec<_> =
        kit.insert_many(vec![m().lane("hot"); ROWS]).await.iter().map(dormouse::Inserted::id).collect();
    let running = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(Mutex::new(Vec::new()));
    let mut loops = Vec::new();
    for name in 0..8 {
        let worker = kit.worker(&format!("w{name}")).await;
        let (store, running, ended) = (kit.store.clone(), running.clone(), ended.clone());
        loops.push(tokio::spawn(async move {
            while ended.lock().expect("no panic").len() < ROWS {
                let claimed = store.claim(five_rows(worker)).await.expect("a claim").value;
                assert!(claimed.len() <= 1, "a lane gives one at a time");
                let Some(row) = claimed.into_iter().next() else {
                    tokio::task::yield_now().await;
                    continue;
                };
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two of a lane run at once");
                tokio::task::yield_now().await;
                let second_step = row.at.step == "second";
                if second_step {
                    ended.lock().expect("no panic").push(row.id);
                }
                running.fetch_sub(1, Ordering::SeqCst);
                let transition = if second_step { done() } else { next("second") };
                store.commit(worker, [commit(&row, transition)].into()).await.expect("a commit");
            }
        }));
    }
    for claiming in loops {
        tokio::time::timeout(SOON, claiming).await.expect("the lane drains").expect("no panic");
    }
    assert_eq!(*ended.lock().expect("no panic"), expected, "strict order");
    assert_eq!(kit.stats().await.count(Status::Done), ROWS as u64, "nothing is left blocked");
}

async fn eight_engines_on_one_hot_lane_never_run_two_at_once_and_keep_its_order(kit: Kit) {
    const ROWS: usize = 60;
    let running = Arc::new(AtomicUsize::new(0));
    let ran = Arc::new(Mutex::new(Vec::new()));
    let mut engines = Vec::new();
    for _ in 0..8 {
        let (running, ran) = (running.clone(), ran.clone());
        let machine = Script::named("m", move |at, cx| {
            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two of a lane run at once");
            std::thread::yield_now();
            running.fetch_sub(1, Ordering::SeqCst);
            if at.step == "start" {
                return Ok(next("second"));
            }
            ran.lock().expect("no panic").push(cx.id());
            Ok(done())
        });
        // Without running ahead, every step is a claim of its own, by any of the engines.
        let builder = kit.engine().run_ahead(1, Duration::ZERO).dyn_machine(machine);
        engines.push(builder.start().await.expect("it starts"));
    }
    let client = engines[0].client();
    let expected: Vec<_> = client
        .start_many(vec![m().lane("hot"); ROWS])
        .await
        .expect("a start")
        .iter()
        .map(dormouse::Inserted::id)
        .collect();
    for id in &expected {
        kit.until(*id, Status::Done).await;
    }
    for engine in engines {
        engine.shutdown().await;
    }
    assert_eq!(*ran.lock().expect("no panic"), expected, "strict order");
}

async fn a_batch_claim_takes_one_of_a_lane(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, 100).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[0]]);
    assert!(claim_ids(&kit, worker).await.is_empty());
}

async fn one_that_arrives_while_the_lane_is_held_waits_for_it(kit: Kit) {
    let worker = kit.worker("w").await;
    let holder = kit.insert(m().lane("l")).await;
    let claimed = kit.claim_one(worker).await;
    let late = kit.insert(m().lane("l")).await;
    assert!(kit.get(late).await.lane_blocked && !kit.get(holder).await.lane_blocked);
    assert!(claim_ids(&kit, worker).await.is_empty());
    kit.commit(worker, commit(&claimed, done())).await;
    assert_eq!(claim_ids(&kit, worker).await, [late]);
}

async fn a_lane_whose_holder_died_goes_on_with_it_and_then_with_the_next(kit: Kit) {
    let mortal = kit.worker_with_lease("mortal", Duration::from_secs(1)).await;
    let heir = kit.worker("heir").await;
    let lane = lane_of(&kit, 3).await;
    let lost = kit.claim_one(mortal).await;
    kit.advance(Duration::from_secs(2));
    assert!(claim_ids(&kit, heir).await.is_empty(), "not before the reap");
    assert_eq!(kit.reap().await, 1);
    let again = kit.claim_one(heir).await;
    assert_eq!((again.id, again.attempt), (lane[0], 1));
    assert!(matches!(kit.commit(mortal, commit(&lost, done())).await, Receipt::Stale));
    assert!(claim_ids(&kit, heir).await.is_empty(), "a stale outcome does not open the lane");
    kit.commit(heir, commit(&again, done())).await;
    assert_eq!(claim_ids(&kit, heir).await, [lane[1]]);
}

async fn a_worker_whose_lease_is_over_cannot_take_a_lane_that_nobody_would_free(kit: Kit) {
    let late = kit.worker_with_lease("late", Duration::from_secs(1)).await;
    let heir = kit.worker("heir").await;
    let lane = lane_of(&kit, 1).await;
    kit.advance(Duration::from_secs(2));
    assert!(claim_ids(&kit, late).await.is_empty(), "its lease is over");
    assert_eq!(kit.reap().await, 0);
    assert!(claim_ids(&kit, late).await.is_empty(), "and it is forgotten: no reaper would find its claims");
    assert_eq!(claim_ids(&kit, heir).await, lane);
}

async fn every_outcome_that_lets_go_hands_the_lane_to_the_next(kit: Kit) {
    let worker = kit.worker("w").await;
    let minute = Duration::from_secs(60);
    let outcomes = [
        done(),
        fail("boom"),
        sleep("later", minute),
        replay("start", minute),
        wait_for(&["go"], "later"),
        Transition::Spawn(spawn(vec![NewInstance::named("c", 1, at("start"))], "join")),
    ];
    let lane = lane_of(&kit, outcomes.len() + 1).await;
    for (outcome, id) in outcomes.into_iter().zip(&lane) {
        let claimed = kit.claim(worker, 10).await;
        assert_eq!(claimed.iter().map(|row| row.id).collect::<Vec<_>>(), [*id]);
        kit.commit(worker, commit(&claimed[0], outcome)).await;
    }
    assert_eq!(claim_ids(&kit, worker).await, lane[lane.len() - 1..]);
}

async fn a_next_keeps_the_lane_and_its_place(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, 2).await;
    kit.advance(Duration::from_secs(1));
    for outcome in [next("second"), replay("second", Duration::ZERO), next("third")] {
        let claimed = kit.claim_one(worker).await;
        assert_eq!(claimed.id, lane[0]);
        kit.commit(worker, commit(&claimed, outcome)).await;
    }
    let claimed = kit.claim_one(worker).await;
    let ahead =
        kit.commit(worker, dormouse::store::Commit { hold: Hold::Keep, ..commit(&claimed, next("end")) });
    assert!(matches!(ahead.await, Receipt::Held { .. }));
    assert!(claim_ids(&kit, worker).await.is_empty());
}

async fn a_holder_cancelled_before_it_ran_hands_the_lane_on(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, 3).await;
    kit.client().cancel(lane[1]).await.expect("a live instance");
    kit.client().cancel(lane[0]).await.expect("a live instance");
    assert_eq!(claim_ids(&kit, worker).await, [lane[2]]);
}

async fn a_holder_cancelled_while_it_runs_hands_the_lane_on_when_its_step_ends(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, 2).await;
    let claimed = kit.claim_one(worker).await;
    kit.client().cancel(lane[0]).await.expect("a live instance");
    assert!(claim_ids(&kit, worker).await.is_empty(), "its step still runs");
    assert!(matches!(kit.commit(worker, commit(&claimed, next("end"))).await, Receipt::Cancelled));
    assert_eq!(claim_ids(&kit, worker).await, [lane[1]]);
}

async fn a_paused_holder_hands_the_lane_on_and_enters_it_again_when_resumed(kit: Kit) {
    let worker = kit.worker("w").await;
    let client = kit.client();
    let lane = lane_of(&kit, 2).await;
    client.pause(lane[0]).await.expect("a live instance");
    let other = kit.claim(worker, 10).await.remove(0);
    assert_eq!(other.id, lane[1]);
    client.resume(lane[0]).await.expect("a live instance");
    assert!(claim_ids(&kit, worker).await.is_empty(), "it waits for its lane");
    kit.commit(worker, commit(&other, done())).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[0]]);

    let alone = kit.insert(m().lane("free")).await;
    client.pause(alone).await.expect("a live instance");
    assert!(claim_ids(&kit, worker).await.is_empty());
    client.resume(alone).await.expect("a live instance");
    assert_eq!(claim_ids(&kit, worker).await, [alone], "a free lane is entered at once");
}

async fn a_holder_paused_while_it_runs_hands_the_lane_on_after_its_step(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, 3).await;
    let claimed = kit.claim_one(worker).await;
    kit.advance(Duration::from_secs(1));
    kit.client().pause(lane[0]).await.expect("a live instance");
    assert!(claim_ids(&kit, worker).await.is_empty(), "its step still runs");
    kit.commit(worker, commit(&claimed, next("second"))).await;
    let other = kit.claim(worker, 10).await.remove(0);
    assert_eq!(other.id, lane[1]);
    kit.client().resume(lane[0]).await.expect("a live instance");
    assert!(claim_ids(&kit, worker).await.is_empty());
    kit.commit(worker, commit(&other, done())).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[0]], "it kept its place in the line");
}

async fn a_paused_one_in_line_is_passed_over(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, 3).await;
    kit.client().pause(lane[1]).await.expect("a live instance");
    for expected in [lane[0], lane[2]] {
        let claimed = kit.claim_one(worker).await;
        assert_eq!(claimed.id, expected);
        kit.commit(worker, commit(&claimed, done())).await;
    }
    kit.client().resume(lane[1]).await.expect("a live instance");
    assert_eq!(claim_ids(&kit, worker).await, [lane[1]]);
}

async fn one_that_arrives_behind_a_paused_one_runs(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, 1).await;
    kit.client().pause(lane[0]).await.expect("a live instance");
    let late = kit.insert(m().lane("l")).await;
    assert_eq!(claim_ids(&kit, worker).await, [late], "one that is paused holds no lane");
}

async fn one_that_wakes_waits_for_the_lane(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, 2).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "end"))).await;
    let other = kit.claim_one(worker).await;
    kit.deliver(lane[0], signal("go")).await;
    assert!(kit.get(lane[0]).await.lane_blocked);
    assert!(claim_ids(&kit, worker).await.is_empty());
    kit.commit(worker, commit(&other, done())).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[0]]);
}

async fn one_that_wakes_from_a_sleep_waits_for_the_lane(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, 2).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, sleep("end", Duration::from_secs(60)))).await;
    let other = kit.claim_one(worker).await;
    kit.advance(Duration::from_secs(60));
    assert_eq!(kit.due().await, 1);
    assert!(claim_ids(&kit, worker).await.is_empty());
    kit.commit(worker, commit(&other, done())).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[0]]);
}

async fn a_retried_one_waits_for_the_lane(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, 2).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, fail("boom"))).await;
    let other = kit.claim_one(worker).await;
    kit.client().retry(lane[0]).await.expect("a failed instance");
    assert!(claim_ids(&kit, worker).await.is_empty());
    kit.commit(worker, commit(&other, done())).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[0]]);
}

async fn priorities_order_the_lane(kit: Kit) {
    let worker = kit.worker("w").await;
    let holder = kit.insert(m().lane("l")).await;
    let low = kit.insert(m().lane("l").priority(5)).await;
    let (first, second) = (kit.insert(m().lane("l")).await, kit.insert(m().lane("l")).await);
    kit.advance(Duration::from_secs(1));
    let urgent = kit.insert(m().lane("l").priority(-5)).await;
    for expected in [holder, urgent, first, second, low] {
        let claimed = kit.claim_one(worker).await;
        assert_eq!(claimed.id, expected);
        kit.commit(worker, commit(&claimed, done())).await;
    }
}

async fn a_delayed_start_does_not_hold_the_lane(kit: Kit) {
    let worker = kit.worker("w").await;
    let delayed = kit.insert(m().lane("l").start_at(Duration::from_secs(60))).await;
    let prompt = kit.insert(m().lane("l")).await;
    let claimed = kit.claim_one(worker).await;
    assert_eq!(claimed.id, prompt);
    kit.advance(Duration::from_secs(60));
    kit.due().await;
    assert!(claim_ids(&kit, worker).await.is_empty());
    kit.commit(worker, commit(&claimed, done())).await;
    assert_eq!(claim_ids(&kit, worker).await, [delayed]);
}

async fn other_lanes_and_those_without_one_go_on(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, 50).await;
    kit.claim_one(worker).await;
    let (laneless, other) = (kit.insert(m()).await, kit.insert(m().lane("other")).await);
    assert_eq!(claim_ids(&kit, worker).await, [laneless, other]);
    assert_eq!(kit.status(lane[1]).await, Status::Runnable);
}

async fn a_lane_runs_across_queues_and_machines(kit: Kit) {
    let worker = kit.worker("w").await;
    let here = kit.insert(m().lane("l")).await;
    let there = kit.insert(NewInstance::named("n", 1, at("start")).queue("other").lane("l")).await;
    let claim_there = || kit.claim_from(worker, "other", &[("n", 1)], 10);
    assert!(claim_there().await.is_empty());
    let claimed = kit.claim_one(worker).await;
    assert_eq!(claimed.id, here);
    let released = kit.store.commit(worker, [commit(&claimed, done())].into()).await.expect("a commit");
    assert!(released.effects.queues.contains("other"), "the next one's queue is poked");
    assert_eq!(claim_there().await[0].id, there);
}

/// Instances of one lane, in order.
async fn lane_of(kit: &Kit, rows: usize) -> Vec<InstanceId> {
    kit.insert_many(vec![m().lane("l"); rows]).await.iter().map(dormouse::Inserted::id).collect()
}

async fn claim_ids(kit: &Kit, worker: WorkerId) -> Vec<InstanceId> {
    kit.claim(worker, 10).await.iter().map(|row| row.id).collect()
}

fn five_rows(worker: WorkerId) -> Claim {
    let machines = [("m".to_owned(), 1)].into();
    let (queue, after) = ("default".to_owned(), Turns::default());
    Claim {
        worker,
        queue,
        namespaces: Namespaces::All,
        machines,
        after,
        later_than: None,
        places: usize::MAX,
        rows_max: 5,
    }
}

async fn of_those_inserted_together_the_lanes_order_decides_who_is_first(kit: Kit) {
    let batch = vec![m().lane("l").priority(1), m().lane("l").priority(0), m().lane("l").priority(1)];
    let ids: Vec<_> = kit.insert_many(batch).await.iter().map(dormouse::Inserted::id).collect();
    assert_eq!(drain(&kit).await, [ids[1], ids[0], ids[2]]);
}

async fn of_those_that_wake_together_the_lanes_order_decides_who_is_first(kit: Kit) {
    let later = |seconds| m().lane("l").start_at(Duration::from_secs(seconds));
    let batch = vec![later(10).priority(1), later(30).priority(0), later(20).priority(0)];
    let ids: Vec<_> = kit.insert_many(batch).await.iter().map(dormouse::Inserted::id).collect();
    kit.advance(Duration::from_secs(60));
    assert_eq!(kit.due().await, 3);
    assert_eq!(drain(&kit).await, [ids[1], ids[2], ids[0]], "they became runnable at the same moment");
}

/// Runs whatever can run to its end, one after the other.
async fn drain(kit: &Kit) -> Vec<InstanceId> {
    let worker = kit.worker("w").await;
    let mut ran = Vec::new();
    while let Some(claimed) = kit.claim(worker, 1).await.pop() {
        kit.commit(worker, commit(&claimed, done())).await;
        ran.push(claimed.id);
    }
    ran
}
