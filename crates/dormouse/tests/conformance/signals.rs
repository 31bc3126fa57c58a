//! Park, deliver, consume.

use std::time::Duration;

use dormouse::store::{Bounds, Delivery, Hold, Receipt};
use dormouse::{Client, Delivered, EventKind, Json, NewSignal, Started, Status, Target, Wake};

use crate::kit::*;

suite![
    a_signal_wakes_whoever_is_parked_on_its_name,
    a_signal_sent_before_the_wait_still_wakes_it,
    a_signal_that_arrives_between_claim_and_park_wakes_the_park,
    deliver_and_park_race_in_every_order_and_always_wake_exactly_once,
    a_signal_of_another_name_stays_in_the_inbox,
    any_name_of_a_set_wakes_it,
    only_received_signals_are_consumed_on_progress,
    a_signal_that_arrives_while_the_step_runs_survives_its_outcome,
    re_awaiting_consumes_nothing_and_does_not_spin,
    a_pack_accumulates_until_it_is_whole,
    a_replay_keeps_its_inputs,
    a_dedup_key_is_remembered_after_consumption,
    a_dedup_key_is_remembered_after_a_failure_and_a_retry,
    the_same_dedup_key_sent_by_many_at_once_is_one_delivery,
    a_terminal_or_unknown_target_is_refused_and_nothing_is_stored,
    done_drops_the_inbox,
    a_retry_of_a_failed_step_finds_its_inputs_again,
    two_executions_cannot_both_consume,
    a_batch_of_signals_has_a_result_for_each,
    a_start_with_a_signal_is_one_commit,
    a_start_with_a_signal_into_a_taken_key_signals_the_holder,
    a_run_ahead_step_sees_what_arrived_meanwhile,
    who_waits_for_a_signal_can_be_asked,
];

async fn a_signal_wakes_whoever_is_parked_on_its_name(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    assert_eq!(kit.status(id).await, Status::AwaitingSignal);
    assert!(matches!(kit.deliver(id, signal("paid")).await, Delivered::Accepted { woke: true, .. }));

    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.at.step.as_ref(), woken.wake, woken.attempt), ("ship", Some(Wake::Signal), 0));
    assert_eq!(received(&woken).len(), 1);
    kit.commit(worker, commit(&woken, done())).await;
    use EventKind::*;
    assert_eq!(kit.story(id).await, [Created, SignalWaiting, SignalReceived, Done]);
}

async fn a_signal_sent_before_the_wait_still_wakes_it(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    assert!(matches!(kit.deliver(id, signal("paid")).await, Delivered::Accepted { woke: false, .. }));
    let claimed = kit.claim_one(worker).await;
    assert_eq!(claimed.inbox.len(), 1, "the whole inbox is visible");
    assert!(received(&claimed).is_empty(), "nothing was awaited yet");
    kit.commit(worker, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    assert_eq!(kit.status(id).await, Status::Runnable);
    assert_eq!(received(&kit.claim_one(worker).await).len(), 1);
    assert_eq!(kit.story(id).await[1..], [EventKind::SignalWaiting, EventKind::SignalReceived]);
}

async fn a_signal_that_arrives_between_claim_and_park_wakes_the_park(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.deliver(id, signal("paid")).await;
    kit.commit(worker, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    assert_eq!(kit.status(id).await, Status::Runnable);
}

async fn deliver_and_park_race_in_every_order_and_always_wake_exactly_once(kit: Kit) {
    let worker = kit.worker("w").await;
    for _ in 0..200 {
        let id = kit.insert(m()).await;
        let claimed = kit.claim_one(worker).await;
        let park = kit.commit(worker, commit(&claimed, wait_for(&["paid"], "ship")));
        tokio::join!(park, kit.deliver(id, signal("paid")));
        let woken = kit.claim_one(worker).await;
        assert_eq!((woken.id, received(&woken).len()), (id, 1));
        kit.commit(worker, commit(&woken, done())).await;
        let received =
            kit.story(id).await.into_iter().filter(|kind| *kind == EventKind::SignalReceived).count();
        assert_eq!(received, 1, "one wake");
    }
}

async fn a_signal_of_another_name_stays_in_the_inbox(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    assert!(matches!(kit.deliver(id, signal("other")).await, Delivered::Accepted { woke: false, .. }));
    assert_eq!(kit.status(id).await, Status::AwaitingSignal);
    kit.deliver(id, signal("paid")).await;
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.inbox.len(), received(&woken).len()), (2, 1));
    kit.commit(worker, commit(&woken, wait_for(&["other"], "end"))).await;
    assert_eq!(kit.status(id).await, Status::Runnable, "it was kept for a later wait");
}

async fn any_name_of_a_set_wakes_it(kit: Kit) {
    let worker = kit.worker("w").await;
    for name in ["a", "b", "c"] {
        let id = kit.insert(m()).await;
        let claimed = kit.claim_one(worker).await;
        kit.commit(worker, commit(&claimed, wait_for(&["c", "a", "b", "a"], "end"))).await;
        kit.deliver(id, signal(name)).await;
        let woken = kit.claim_one(worker).await;
        assert_eq!(woken.inbox[0].name, name);
        kit.commit(worker, commit(&woken, done())).await;
    }
}

async fn only_received_signals_are_consumed_on_progress(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.deliver(id, signal("kept")).await;
    kit.deliver(id, signal("paid")).await;
    kit.commit(worker, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    let woken = kit.claim_one(worker).await;
    kit.deliver(id, signal("paid")).await;
    kit.commit(worker, commit(&woken, next("end"))).await;
    let left: Vec<_> = kit.client().inbox(id).await.expect("a read").into_iter().map(|s| s.name).collect();
    assert_eq!(left, ["kept", "paid"], "the one never awaited and the one that came later");
    assert_eq!(kit.get(id).await.inbox, 2);
    let event = kit.history(id).await.pop().expect("an event");
    let data = event.data.expect("what was consumed").to_string();
    assert!(data.contains("consumed") && data.contains("paid"), "{data}");
}

async fn a_signal_that_arrives_while_the_step_runs_survives_its_outcome(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    for outcome in [sleep("s", Duration::ZERO), next("n"), replay("n", Duration::ZERO)] {
        let claimed = kit.claim_one(worker).await;
        kit.deliver(id, signal("late")).await;
        kit.commit(worker, commit(&claimed, outcome)).await;
        kit.due().await;
    }
    assert_eq!(kit.claim_one(worker).await.inbox.len(), 3);
}

async fn re_awaiting_consumes_nothing_and_does_not_spin(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["a", "b"], "collect"))).await;
    kit.deliver(id, signal("a")).await;
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, wait_for(&["a", "b"], "collect"))).await;
    assert_eq!(kit.status(id).await, Status::AwaitingSignal, "it was handed that one already");
    assert_eq!(kit.get(id).await.inbox, 1);
    kit.deliver(id, signal("a")).await;
    let woken = kit.claim_one(worker).await;
    assert_eq!(received(&woken).len(), 2, "a new one wakes it with the whole pack");
}

async fn a_pack_accumulates_until_it_is_whole(kit: Kit) {
    let engine = kit
        .run(|at, cx| {
            let have = cx.received_all().count();
            Ok(match at.step.as_ref() {
                "start" => wait_for(&["a", "b", "c"], "collect"),
                "collect" if have < 3 => wait_for(&["a", "b", "c"], "collect"),
                _ => dormouse::Transition::Done { output: Json::from(serde_json::json!(have)) },
            })
        })
        .await;
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    for name in ["c", "a", "b"] {
        kit.until(id, Status::AwaitingSignal).await;
        engine.client().signal_raw(id, signal(name)).await.expect("a live target");
    }
    assert_eq!(kit.until(id, Status::Done).await.output.expect("an output").as_str(), "3");
    engine.shutdown().await;
}

async fn a_replay_keeps_its_inputs(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_until(&["paid"], "ship", Duration::from_secs(60)))).await;
    kit.deliver(id, signal("paid")).await;
    for attempt in 0..3 {
        let woken = kit.claim_one(worker).await;
        assert_eq!((received(&woken).len(), woken.wake, woken.attempt), (1, Some(Wake::Signal), attempt));
        kit.commit(worker, commit(&woken, replay("ship", Duration::from_secs(1)))).await;
        kit.advance(Duration::from_secs(1));
        assert_eq!(kit.due().await, 1);
    }
}

async fn a_dedup_key_is_remembered_after_consumption(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    assert!(matches!(kit.deliver(id, signal("paid").dedup("evt-7")).await, Delivered::Accepted { .. }));
    assert_eq!(kit.deliver(id, signal("paid").dedup("evt-7")).await, Delivered::Duplicate);
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, next("end"))).await;
    assert_eq!(kit.get(id).await.inbox, 0);
    assert_eq!(kit.deliver(id, signal("paid").dedup("evt-7")).await, Delivered::Duplicate);
    assert_eq!(kit.deliver(id, signal("other").dedup("evt-7")).await, Delivered::Duplicate);
    assert!(kit.client().inbox(id).await.expect("a read").is_empty());
    let other = kit.insert(m()).await;
    let accepted = kit.deliver(other, signal("paid").dedup("evt-7")).await;
    assert!(matches!(accepted, Delivered::Accepted { .. }), "another instance has keys of its own");
}

async fn a_dedup_key_is_remembered_after_a_failure_and_a_retry(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    kit.deliver(id, signal("paid").dedup("evt-7")).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, fail("boom"))).await;
    kit.client().retry(id).await.expect("a failed instance can be retried");
    assert_eq!(kit.deliver(id, signal("paid").dedup("evt-7")).await, Delivered::Duplicate);
}

async fn the_same_dedup_key_sent_by_many_at_once_is_one_delivery(kit: Kit) {
    let id = kit.insert(m()).await;
    let senders = (0..20).map(|_| {
        let client = kit.client();
        tokio::spawn(async move { client.signal_raw(id, signal("paid").dedup("once")).await })
    });
    let mut accepted = 0;
    for sender in senders.collect::<Vec<_>>() {
        match sender.await.expect("no panic").expect("a live target") {
            Delivered::Accepted { .. } => accepted += 1,
            other => assert_eq!(other, Delivered::Duplicate),
        }
    }
    assert_eq!((accepted, kit.get(id).await.inbox), (1, 1));
}

async fn a_terminal_or_unknown_target_is_refused_and_nothing_is_stored(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m().key("order:1")).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, done())).await;
    assert_eq!(kit.deliver(id, signal("paid")).await, Delivered::NoTarget);
    assert_eq!(kit.deliver(dormouse::InstanceId(999), signal("paid")).await, Delivered::NoTarget);
    assert!(kit.store.inbox(id, None, Bounds::rows(1000)).await.expect("a read").items.is_empty());
    let refused = kit.client().signal_raw("order:1", signal("paid")).await.expect_err("it has ended");
    assert!(refused.to_string().contains("order:1"), "{refused}");
}

async fn done_drops_the_inbox(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    kit.deliver(id, signal("never read").dedup("k")).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, done())).await;
    assert!(kit.store.inbox(id, None, Bounds::rows(1000)).await.expect("a read").items.is_empty());
    assert_eq!(kit.get(id).await.inbox, 0);
}

async fn a_retry_of_a_failed_step_finds_its_inputs_again(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    kit.deliver(id, signal("paid")).await;
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, fail("the warehouse is closed"))).await;
    assert_eq!(kit.client().inbox(id).await.expect("a read").len(), 1, "it is put away for a retry");
    kit.client().retry(id).await.expect("a failed instance can be retried");
    let again = kit.claim_one(worker).await;
    assert_eq!((received(&again).len(), again.wake, again.attempt), (1, Some(Wake::Signal), 0));
}

async fn two_executions_cannot_both_consume(kit: Kit) {
    let slow = kit.worker_with_lease("slow", Duration::from_secs(1)).await;
    let fast = kit.worker("fast").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(slow).await;
    kit.commit(slow, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    kit.deliver(id, signal("paid")).await;
    let first = kit.claim_one(slow).await;
    kit.advance(Duration::from_secs(2));
    assert_eq!(kit.reap().await, 1);
    let second = kit.claim_one(fast).await;
    assert_eq!(received(&first), received(&second), "both were handed the signal");
    assert!(matches!(kit.commit(fast, commit(&second, next("end"))).await, Receipt::Released));
    kit.deliver(id, signal("paid")).await;
    let before = kit.get(id).await;
    assert!(matches!(kit.commit(slow, commit(&first, next("end"))).await, Receipt::Stale));
    assert_eq!(kit.get(id).await, before, "a stale outcome changes nothing");
}

async fn a_batch_of_signals_has_a_result_for_each(kit: Kit) {
    let worker = kit.worker("w").await;
    let parked = kit.insert(m().key("a")).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "end"))).await;
    let to = |target: Target, signal: NewSignal| (target, signal);
    let results = kit
        .client()
        .signal_many([
            to("a".into(), signal("go").dedup("1")),
            to(parked.into(), signal("go").dedup("1")),
            to("nobody".into(), signal("go")),
            to(parked.into(), signal("go")),
        ])
        .await
        .expect("a batch");
    assert!(matches!(results[0], Delivered::Accepted { woke: true, .. }));
    assert_eq!(results[1..3], [Delivered::Duplicate, Delivered::NoTarget]);
    assert!(matches!(results[3], Delivered::Accepted { woke: false, .. }));
    assert_eq!(kit.get(parked).await.inbox, 2);
}

async fn a_start_with_a_signal_is_one_commit(kit: Kit) {
    let started = kit.client().start_and_signal(m().key("k"), signal("hello")).await.expect("a start");
    let Started::New(id) = started else { panic!("expected a new instance, got {started:?}") };
    assert_eq!(kit.get(id).await.inbox, 1);
}

async fn a_start_with_a_signal_into_a_taken_key_signals_the_holder(kit: Kit) {
    let worker = kit.worker("w").await;
    let holder = kit.insert(m().key("k")).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["hello"], "end"))).await;
    let started =
        kit.client().start_and_signal(m().key("k"), signal("hello").dedup("1")).await.expect("a signal");
    assert!(
        matches!(started, Started::Signalled(id, Delivered::Accepted { woke: true, .. }) if id == holder)
    );
    let again =
        kit.client().start_and_signal(m().key("k"), signal("hello").dedup("1")).await.expect("a signal");
    assert_eq!(again, Started::Signalled(holder, Delivered::Duplicate));
}

async fn a_run_ahead_step_sees_what_arrived_meanwhile(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.deliver(id, signal("news")).await;
    let mut keep = commit(&claimed, next("second"));
    keep.hold = Hold::Keep;
    match kit.commit(worker, keep).await {
        Receipt::Held { inbox, seq, .. } => assert_eq!((inbox.len(), seq), (1, claimed.seq + 1)),
        other => panic!("expected to hold the claim, got {other:?}"),
    }
    assert_eq!(kit.status(id).await, Status::Executing);
}

async fn who_waits_for_a_signal_can_be_asked(kit: Kit) {
    let worker = kit.worker("w").await;
    let client: Client = kit.client();
    let mut parked = Vec::new();
    for names in [["a", "b"], ["b", "c"], ["x", "y"]] {
        let id = kit.insert(m()).await;
        let claimed = kit.claim_one(worker).await;
        kit.commit(worker, commit(&claimed, wait_for(&names, "end"))).await;
        parked.push(id);
    }
    let found: Vec<_> =
        client.find_waiting("b", 10).await.expect("a page").instances.into_iter().map(|i| i.id).collect();
    assert_eq!(found, [parked[0], parked[1]], "who has waited longest comes first");
    assert_eq!(client.waiting(parked[2]).await.expect("a read"), ["x", "y"]);
    kit.store.deliver(vec![delivery(parked[0], "b")]).await.expect("a delivery");
    assert_eq!(client.find_waiting("b", 10).await.expect("a page").instances.len(), 1);
    assert!(client.find_waiting("nothing", 10).await.expect("a page").instances.is_empty());
}

fn delivery(id: dormouse::InstanceId, name: &str) -> Delivery {
    Delivery {
        namespace: "default".to_owned(),
        target: id.into(),
        signal: signal(name),
        inbox_max: dormouse::InboxMax::default(),
        kept_max: dormouse::KeptMax::default(),
    }
}
