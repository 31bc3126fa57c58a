//! What the signals of a flow mean.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::flow::{Child, Cx, Flow, FlowMachine, act, parallel, repeat, saga, scene, signal};
use dormouse::prelude::*;
use dormouse::{Delivered, DynMachine, Error, EventKind, NewSignal, Status, Target};

use super::shop::*;
use crate::kit::Kit;

suite![
    a_signal_is_a_part_with_its_payload_in_its_type,
    waiting_receiving_and_timing_out_are_events,
    what_was_received_is_in_the_state_and_not_received_again,
    a_timeout_is_a_moment_in_the_database_and_wakes_it_to_the_moment,
    a_timeout_never_overrides_a_signal_that_came,
    a_signal_is_sent_by_name_and_resumes_the_flow,
    waiters_in_parallel_branches_are_addressed_by_path,
    instances_are_found_by_the_signal_they_wait_for,
    on_receive_may_refuse_what_it_is_given,
    an_expiry_is_for_on_receive_to_judge,
    a_signal_is_acknowledged_when_it_is_kept_and_not_when_it_is_used,
    a_condition_is_looked_at_on_entry_alone_and_a_skipped_signal_is_told,
    a_timeout_without_on_timeout_fails_the_part,
    cancelling_closes_the_wait_and_its_deadline_changes_nothing,
    signals_sent_rapidly_and_in_any_order_are_all_kept,
    many_flows_are_signalled_at_once,
];

async fn a_signal_is_a_part_with_its_payload_in_its_type(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let id = shop.start(5000).await;
    kit.until(id, Status::AwaitingSignal).await;
    let wrong = NewSignal::new("approval", dormouse::Json::null());
    let refused = shop.client().signal_raw(id, wrong).await.expect_err("it is no approval");
    assert!(matches!(refused, Error::PayloadRefused { .. }), "{refused}");
    shop.approve(id, "Ada").await;
    assert_eq!(shop.outcome(id).await.approved_by, ["Ada"]);
    shop.engine.shutdown().await;
}

async fn waiting_receiving_and_timing_out_are_events(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let (received, late) = (shop.start(5000).await, shop.start(5000).await);
    kit.until(late, Status::AwaitingSignal).await;
    shop.approve(received, "Ada").await;
    shop.outcome(received).await;
    kit.advance(48 * HOUR);
    shop.outcome(late).await;
    let waits = |story: Vec<EventKind>| story.into_iter().skip(1).take(2).collect::<Vec<_>>();
    assert_eq!(waits(kit.story(received).await), [EventKind::SignalWaiting, EventKind::SignalReceived]);
    assert_eq!(waits(kit.story(late).await), [EventKind::SignalWaiting, EventKind::SignalTimeout]);
    let history = kit.history(received).await;
    let told = history[2].data.as_ref().expect("a payload").as_str();
    assert!(told.contains("Ada"), "{told}");
    assert!(history[3].state.as_str().contains("Ada"), "the state after");
    shop.engine.shutdown().await;
}

async fn what_was_received_is_in_the_state_and_not_received_again(kit: Kit) {
    let received = Arc::new(AtomicUsize::new(0));
    let counted = received.clone();
    let count = move |order, approval| {
        counted.fetch_add(1, Ordering::SeqCst);
        approve(order, approval)
    };
    let stumble = |order, cx: Cx<Log>| async move {
        if cx.attempt() < 3 { Err("it stumbles".into()) } else { note(order, &cx, "stumble") }
    };
    let again = Retry::times(5).backoff(Duration::ZERO, Duration::ZERO);
    let flow = Flow::new("f").then(signal(APPROVAL, count).sent_by("the test"));
    let shop = Shop::open(&kit, flow.then(act(stumble).named("stumble").retry(again))).await;
    let id = shop.start(1).await;
    shop.approve(id, "Ada").await;
    assert_eq!(shop.outcome(id).await.approved_by, ["Ada"]);
    assert_eq!(received.load(Ordering::SeqCst), 1, "three more tries of what follows");
    shop.engine.shutdown().await;
}

async fn a_timeout_is_a_moment_in_the_database_and_wakes_it_to_the_moment(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let id = shop.start(5000).await;
    let parked = kit.until(id, Status::AwaitingSignal).await;
    assert_eq!(parked.wake_at, Some(kit.now() + 48 * HOUR));
    kit.advance(48 * HOUR - Duration::from_secs(1));
    assert_eq!(kit.status(id).await, Status::AwaitingSignal);
    kit.advance(Duration::from_secs(1));
    assert_eq!(shop.outcome(id).await.done, ["escalate", "ship"]);
    shop.engine.shutdown().await;
}

async fn a_timeout_never_overrides_a_signal_that_came(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let id = shop.start(5000).await;
    kit.until(id, Status::AwaitingSignal).await;
    shop.client().pause(id).await.expect("a live target");
    kit.advance(48 * HOUR);
    // The deadline has passed, and nobody has looked yet.
    kit.until(id, Status::Runnable).await;
    shop.approve(id, "Ada").await;
    shop.client().resume(id).await.expect("a live target");
    let order = shop.outcome(id).await;
    assert_eq!((order.approved_by, order.done), (vec!["Ada".to_owned()], vec!["ship".to_owned()]));
    shop.engine.shutdown().await;
}

async fn a_signal_is_sent_by_name_and_resumes_the_flow(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let id = shop.start(5000).await;
    assert_eq!(kit.until(id, Status::AwaitingSignal).await.step, "approval");
    assert_eq!(shop.client().waiting(id).await.expect("a read"), ["approval"]);
    assert!(matches!(shop.approve(id, "Ada").await, Delivered::Accepted { woke: true, .. }));
    shop.outcome(id).await;
    let ended = shop.client().signal(id, APPROVAL, yes("Bob")).await.expect_err("nobody waits any more");
    assert!(matches!(ended, Error::NoTarget(_)), "{ended}");
    shop.engine.shutdown().await;
}

fn review() -> FlowMachine<Order, Log> {
    let flow = Flow::new("review").then(scene("desk", signal(APPROVAL, approve).sent_by("a reviewer")));
    flow.build(Log::default()).expect("it is well formed")
}

fn new_review(_: &Order) -> NewInstance {
    review().instance(&Order::default()).expect("a state")
}

async fn waiters_in_parallel_branches_are_addressed_by_path(kit: Kit) {
    let collect = |mut order: Order, reviews: &[dormouse::ChildView]| {
        for review in reviews {
            let review: Order = review.output()?.ok_or("a review failed")?;
            order.approved_by.extend(review.approved_by);
        }
        Ok(order)
    };
    let branches: [(&str, Child<Order>); 2] = [("legal", new_review), ("finance", new_review)];
    let flow = Flow::new("f").then(parallel("reviews", branches).join(collect));
    let shop = Shop::open_with(&kit, flow, [Arc::new(review()) as Arc<dyn DynMachine>]).await;
    let new = shop.new.clone().key("order:42");
    let id = start(&shop.client(), new, 1).await;
    kit.until(id, Status::AwaitingChildren).await;
    for (by, path) in [("Lea", "order:42/reviews/legal"), ("Fin", "order:42/reviews/finance")] {
        // By the path of the waiting part within its flow, too.
        let signal =
            NewSignal::new("desk/approval", dormouse::Json::encode("payload", &yes(by)).expect("JSON"));
        shop.client().signal_raw(path, signal).await.expect("a live target");
    }
    assert_eq!(shop.outcome(id).await.approved_by, ["Lea", "Fin"]);
    shop.engine.shutdown().await;
}

async fn instances_are_found_by_the_signal_they_wait_for(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let (small, large) = (shop.start(1).await, shop.start(5000).await);
    shop.outcome(small).await;
    kit.until(large, Status::AwaitingSignal).await;
    let found = shop.client().find_waiting("approval", 10).await.expect("a read").instances;
    assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), [large]);
    shop.engine.shutdown().await;
}

async fn on_receive_may_refuse_what_it_is_given(kit: Kit) {
    let only_ada = |order, approval: Approval| match approval.by.as_str() {
        "Ada" => approve(order, approval),
        other => Err(format!("{other} may not approve").into()),
    };
    let shop = Shop::open(&kit, Flow::new("f").then(signal(APPROVAL, only_ada).sent_by("the test"))).await;
    let id = shop.start(1).await;
    shop.approve(id, "Bob").await;
    assert!(failure(&shop.ended(id).await).contains("Bob may not approve"));
    shop.engine.shutdown().await;
}

async fn an_expiry_is_for_on_receive_to_judge(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let id = shop.start(5000).await;
    let expired = Approval { expired: true, ..yes("Ada") };
    shop.client().signal(id, APPROVAL, expired).await.expect("a live target");
    assert!(failure(&shop.ended(id).await).contains("the approval has expired"));
    shop.engine.shutdown().await;
}

async fn a_signal_is_acknowledged_when_it_is_kept_and_not_when_it_is_used(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let (client, new) = (kit.client(), shop.new.clone());
    shop.engine.shutdown().await;
    // Nobody runs it.
    let id = start(&client, new, 5000).await;
    let kept = client.signal(id, APPROVAL, yes("Ada")).await.expect("a live target");
    assert!(matches!(kept, Delivered::Accepted { woke: false, .. }), "{kept:?}");
    let shop = Shop::open(&kit, approval()).await;
    assert_eq!(shop.outcome(id).await.approved_by, ["Ada"]);
    shop.engine.shutdown().await;
}

async fn a_condition_is_looked_at_on_entry_alone_and_a_skipped_signal_is_told(kit: Kit) {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = looks.clone();
    let is_large = move |order: &Order| {
        counted.fetch_add(1, Ordering::SeqCst);
        order.total > 1000
    };
    let wait = signal(APPROVAL, approve).when(is_large).sent_by("the test");
    let shop = Shop::open(&kit, Flow::new("f").then(wait).then(act(ship))).await;
    let large = shop.start(5000).await;
    kit.until(large, Status::AwaitingSignal).await;
    shop.approve(large, "Ada").await;
    shop.outcome(large).await;
    assert_eq!(looks.load(Ordering::SeqCst), 1);
    let small = shop.start(1).await;
    assert_eq!(shop.outcome(small).await.approved_by, Vec::<String>::new());
    let told = kit.history(small).await[1].state.clone();
    assert!(told.as_str().contains(r#""skipped":["approval"]"#), "{told:?}");
    shop.engine.shutdown().await;
}

async fn a_timeout_without_on_timeout_fails_the_part(kit: Kit) {
    let parts = (act(reserve).undo(release), signal(APPROVAL, approve).timeout(HOUR), act(ship));
    let shop = Shop::open(&kit, Flow::new("f").then(saga("booking", parts))).await;
    let id = shop.start(1).await;
    kit.until(id, Status::AwaitingSignal).await;
    kit.advance(HOUR);
    let ended = shop.ended(id).await;
    assert_eq!(failure(&ended), r#"booking/approval: no signal "approval" came within 3600s"#);
    assert_eq!(shop.log(), ["reserve", "release"], "and its saga is undone");
    shop.engine.shutdown().await;
}

async fn cancelling_closes_the_wait_and_its_deadline_changes_nothing(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let id = shop.start(5000).await;
    kit.until(id, Status::AwaitingSignal).await;
    shop.client().cancel(id).await.expect("a live target");
    kit.advance(100 * HOUR);
    let other = shop.start(1).await;
    shop.outcome(other).await;
    let ended = kit.get(id).await;
    assert_eq!((ended.status, ended.wake_at), (Status::Cancelled, None));
    assert_eq!(kit.story(id).await.last(), Some(&EventKind::Cancelled));
    shop.engine.shutdown().await;
}

async fn signals_sent_rapidly_and_in_any_order_are_all_kept(kit: Kit) {
    const LAST: Signal<Approval> = Signal::named("last");
    let three = repeat(
        "votes",
        |order: &Order| order.approved_by.len() < 3,
        signal(APPROVAL, approve).sent_by("voters"),
    );
    let flow = Flow::new("f").then(three.at_most(5)).then(signal(LAST, approve).sent_by("the chair"));
    let shop = Shop::open(&kit, flow).await;
    let id = shop.start(1).await;
    // The last one first, and the others before anybody can have waited for the second of them.
    shop.client().signal(id, LAST, yes("Zoe")).await.expect("a live target");
    for by in ["Ada", "Bob", "Cy"] {
        shop.approve(id, by).await;
    }
    assert_eq!(shop.outcome(id).await.approved_by, ["Ada", "Bob", "Cy", "Zoe"]);
    shop.engine.shutdown().await;
}

async fn many_flows_are_signalled_at_once(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(shop.start(5000).await);
    }
    let yes = NewSignal::of(APPROVAL, &yes("Ada")).expect("JSON");
    let all = ids.iter().map(|id| (Target::Id(*id), yes.clone()));
    let delivered = shop.client().signal_many(all).await.expect("a batch");
    assert!(delivered.iter().all(|one| matches!(one, Delivered::Accepted { .. })), "{delivered:?}");
    for id in ids {
        assert_eq!(shop.outcome(id).await.approved_by, ["Ada"]);
    }
    shop.engine.shutdown().await;
}
