//! The one clock.

use std::sync::Arc;
use std::time::Duration;

use dormouse::store::Receipt;
use dormouse::{EventKind, Status, Transition, Wake, When};

use crate::kit::*;

suite![
    a_timeout_is_a_wake_and_not_a_failure,
    a_timeout_after_a_signal_changes_nothing,
    a_signal_after_the_deadline_is_seen_with_it,
    a_deadline_and_a_signal_that_race_make_one_wake,
    timer_signal_and_reaper_race_on_one_row_and_make_one_transition,
    a_sleep_and_a_delayed_start_are_woken_by_the_clock,
    a_moment_in_the_past_is_now,
    a_moment_beyond_the_ends_of_time_is_held_there,
    a_moment_is_kept_to_the_microsecond,
    many_deadlines_due_at_once_are_drained_in_batches,
    the_store_tells_the_next_moment,
    a_nearer_deadline_wakes_the_timer_early,
    a_clock_that_jumps_back_fires_nothing_early,
    a_timeout_in_a_partial_pack_hands_over_what_came,
];

async fn a_timeout_is_a_wake_and_not_a_failure(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_until(&["paid"], "decide", Duration::from_secs(60)))).await;
    kit.advance(Duration::from_secs(59));
    assert_eq!(kit.due().await, 0);
    kit.advance(Duration::from_secs(1));
    assert_eq!(kit.due().await, 1);
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.wake, woken.attempt, received(&woken).len()), (Some(Wake::Timeout), 0, 0));
    assert_eq!(woken.at.step, "decide");
    use EventKind::*;
    assert_eq!(kit.story(id).await, [Created, SignalWaiting, SignalTimeout]);
}

async fn a_timeout_after_a_signal_changes_nothing(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_until(&["paid"], "decide", Duration::from_secs(60)))).await;
    kit.deliver(id, signal("paid")).await;
    kit.advance(Duration::from_secs(61));
    assert_eq!(kit.due().await, 0);
    assert_eq!(kit.claim_one(worker).await.wake, Some(Wake::Signal));
}

async fn a_signal_after_the_deadline_is_seen_with_it(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_until(&["paid"], "decide", Duration::from_secs(60)))).await;
    kit.advance(Duration::from_secs(60));
    kit.due().await;
    kit.deliver(id, signal("paid")).await;
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.wake, received(&woken).len(), woken.attempt), (Some(Wake::Timeout), 1, 0));
}

async fn a_deadline_and_a_signal_that_race_make_one_wake(kit: Kit) {
    let worker = kit.worker("w").await;
    for _ in 0..100 {
        let id = kit.insert(m()).await;
        let claimed = kit.claim_one(worker).await;
        kit.commit(worker, commit(&claimed, wait_until(&["paid"], "decide", Duration::from_secs(1)))).await;
        kit.advance(Duration::from_secs(1));
        tokio::join!(kit.due(), kit.deliver(id, signal("paid")));
        let woken = kit.claim_one(worker).await;
        assert_eq!((woken.attempt, received(&woken).len()), (0, 1), "both are visible");
        assert_eq!(kit.story(id).await.len(), 3, "one wake");
        kit.commit(worker, commit(&woken, done())).await;
    }
}

async fn timer_signal_and_reaper_race_on_one_row_and_make_one_transition(kit: Kit) {
    let kit = Arc::new(kit);
    for _ in 0..50 {
        let worker = kit.worker("w").await;
        let id = kit.insert(m()).await;
        let claimed = kit.claim_one(worker).await;
        kit.commit(worker, commit(&claimed, wait_until(&["paid"], "decide", Duration::from_secs(1)))).await;
        kit.advance(Duration::from_secs(1));
        kit.worker("w").await;
        let (_, _, reaped) = tokio::join!(kit.due(), kit.deliver(id, signal("paid")), kit.reap());
        assert_eq!(reaped, 0, "a parked row belongs to no worker");
        assert_eq!((kit.status(id).await, kit.story(id).await.len()), (Status::Runnable, 3));
        kit.client().cancel(id).await.expect("a cancel");
    }
}

async fn a_sleep_and_a_delayed_start_are_woken_by_the_clock(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m().start_at(Duration::from_secs(10))).await;
    assert_eq!(kit.status(id).await, Status::Scheduled);
    assert!(kit.claim(worker, 1).await.is_empty());
    kit.advance(Duration::from_secs(10));
    kit.due().await;
    let started = kit.claim_one(worker).await;
    assert_eq!((started.wake, started.at.step.as_ref()), (Some(Wake::Clock), "start"));
    kit.commit(worker, commit(&started, sleep("later", Duration::from_secs(5)))).await;
    assert!(kit.claim(worker, 1).await.is_empty());
    kit.advance(Duration::from_secs(5));
    kit.due().await;
    let slept = kit.claim_one(worker).await;
    assert_eq!((slept.wake, slept.attempt, slept.at.step.as_ref()), (Some(Wake::Clock), 0, "later"));
    use EventKind::*;
    assert_eq!(kit.story(id).await, [Created, TimerFired, StepCompleted, TimerFired]);
}

async fn a_moment_in_the_past_is_now(kit: Kit) {
    let worker = kit.worker("w").await;
    let past = kit.now() - Duration::from_secs(5);
    kit.insert(m().start_at(past)).await;
    let claimed = kit.claim_one(worker).await;
    let sleep = dormouse::Transition::Sleep { at: at("later"), until: past.into() };
    assert!(matches!(kit.commit(worker, commit(&claimed, sleep)).await, Receipt::Released));
    assert_eq!(kit.due().await, 1);
    assert_eq!(kit.claim_one(worker).await.at.step, "later");
}

async fn a_moment_beyond_the_ends_of_time_is_held_there(kit: Kit) {
    use dormouse::jiff::Timestamp;
    let worker = kit.worker("w").await;
    let until = |until: When| Transition::Sleep { at: at("end"), until };
    for (when, told) in [
        (until(Duration::MAX.into()), "9999-12-30T22:00:00Z"),
        (until(Timestamp::MAX.into()), "9999-12-30T22:00:00Z"),
        (until(Timestamp::MIN.into()), "1970-01-01T00:00:00Z"),
    ] {
        let id = kit.insert(m()).await;
        let claimed = kit.claim_one(worker).await;
        kit.commit(worker, commit(&claimed, when)).await;
        assert_eq!(kit.get(id).await.wake_at, Some(told.parse().expect("a moment")));
        assert_eq!(sleeps_until(&kit, id).await, told);
    }
}

async fn a_moment_is_kept_to_the_microsecond(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, sleep("end", Duration::from_nanos(1_234_567)))).await;
    assert_eq!(kit.get(id).await.wake_at, Some("2030-01-01T00:00:00.001234Z".parse().expect("a moment")));
    assert_eq!(
        sleeps_until(&kit, id).await,
        "2030-01-01T00:00:00.001234Z",
        "the story tells the same moment"
    );
    kit.advance(Duration::from_secs(1));
    kit.due().await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, replay("end", Duration::from_nanos(999)))).await;
    assert_eq!(kit.status(id).await, Status::Runnable, "less than a microsecond is nothing to wait for");
}

/// Until when an instance's last event says that it sleeps.
async fn sleeps_until(kit: &Kit, id: dormouse::InstanceId) -> String {
    let data = kit.history(id).await.pop().and_then(|event| event.data).expect("its data");
    let data: serde_json::Value = data.decode("event's data").expect("JSON");
    data["sleep_until"].as_str().expect("a moment").to_owned()
}

async fn many_deadlines_due_at_once_are_drained_in_batches(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert_many(vec![m().start_at(Duration::from_secs(60)); 2500]).await;
    kit.advance(Duration::from_secs(3600));
    let mut batches = Vec::new();
    loop {
        let due = kit.store.due(1000).await.expect("a sweep").value;
        batches.push(due.woken);
        // Other work goes on in between.
        let other = kit.insert(m().priority(-1)).await;
        assert_eq!(kit.claim_one(worker).await.id, other);
        if due.woken < 1000 {
            assert_eq!(due.next, None);
            break;
        }
    }
    assert_eq!(batches, [1000, 1000, 500]);
    assert_eq!(kit.stats().await.count(Status::Runnable), 2500);
}

async fn the_store_tells_the_next_moment(kit: Kit) {
    for seconds in [30, 10, 20] {
        kit.insert(m().start_at(Duration::from_secs(seconds))).await;
    }
    let due = kit.store.due(100).await.expect("a sweep").value;
    assert_eq!(due.next, Some(kit.now() + Duration::from_secs(10)));
    kit.advance(Duration::from_secs(10));
    let due = kit.store.due(100).await.expect("a sweep").value;
    assert_eq!((due.woken, due.next), (1, Some(kit.now() + Duration::from_secs(10))));
}

async fn a_nearer_deadline_wakes_the_timer_early(kit: Kit) {
    let engine = kit
        .engine()
        .dyn_machine(Script::named("m", |_, _| Ok(done())))
        .poll(Duration::from_secs(3600))
        .start()
        .await
        .expect("the engine starts");
    let client = engine.client();
    let far = client.start_many([m().start_at(Duration::from_secs(3600))]).await.expect("a start")[0].id();
    let near = client.start_many([m().start_at(Duration::from_secs(1))]).await.expect("a start")[0].id();
    kit.advance(Duration::from_secs(1));
    kit.until(near, Status::Done).await;
    assert_eq!(kit.status(far).await, Status::Scheduled);
    kit.advance(Duration::from_secs(3600));
    kit.until(far, Status::Done).await;
    engine.shutdown().await;
}

async fn a_clock_that_jumps_back_fires_nothing_early(kit: Kit) {
    let worker = kit.worker_with_lease("w", Duration::from_secs(10)).await;
    let id = kit.insert(m().start_at(Duration::from_secs(60))).await;
    let held = kit.insert(m()).await;
    kit.claim_one(worker).await;
    kit.turn_back(Duration::from_secs(3600));
    assert_eq!((kit.due().await, kit.reap().await), (0, 0));
    kit.advance(Duration::from_secs(3600 + 9));
    assert_eq!((kit.due().await, kit.reap().await), (0, 0));
    kit.advance(Duration::from_secs(51));
    assert_eq!((kit.due().await, kit.reap().await), (1, 1));
    assert_eq!((kit.status(id).await, kit.status(held).await), (Status::Runnable, Status::Runnable));
}

async fn a_timeout_in_a_partial_pack_hands_over_what_came(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let wait = || wait_until(&["a", "b"], "collect", Duration::from_secs(60));
    kit.commit(worker, commit(&claimed, wait())).await;
    kit.deliver(id, signal("a")).await;
    let half = kit.claim_one(worker).await;
    kit.commit(worker, commit(&half, wait())).await;
    kit.advance(Duration::from_secs(60));
    kit.due().await;
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.wake, received(&woken).len()), (Some(Wake::Timeout), 1));
}
