//! Cancelling a saga that undoes what it did: asked once, it undoes; asked twice, it ends.

use std::sync::Arc;
use std::time::Duration;

use dormouse::flow::{ActResult, Cx, Flow, act, call, dispatch, each, saga, scene, signal, sleep};
use dormouse::prelude::*;
use dormouse::store::{Cancel, Filter, InteractionFilter};
use dormouse::{Answers, DynMachine, EventKind, Instance, InstanceId, Status};

use super::shop::*;
use crate::kit::{Kit, SOON};

suite![
    a_saga_that_waits_for_whatever_is_undone_when_it_is_cancelled,
    a_second_cancel_ends_it_at_once,
    an_act_that_is_running_is_done_first_and_then_undone,
    a_cancel_with_the_last_act_is_answered_at_the_end_of_the_saga,
    before_and_after_the_saga_a_cancel_ends_it_at_once,
    a_saga_that_does_not_say_so_undoes_nothing,
    children_of_a_cancelled_saga_undo_first,
    whoever_has_not_the_code_cancels_the_same_way,
    a_crash_in_the_middle_of_undoing_goes_on_with_it,
    a_retry_forgets_that_it_was_cancelled,
];

fn undone<P: dormouse::flow::Parts<Order, Log>>(part: P) -> Flow<Order, Log> {
    let parts = saga("booking", act(reserve).undo(release)).then(part).then(act(ship));
    Flow::new("f").then(parts.undo_on_cancel())
}

async fn parked(shop: &Shop, kit: &Kit, status: Status) -> InstanceId {
    let id = shop.start(1).await;
    kit.until(id, status).await;
    id
}

#[track_caller]
fn assert_undone(ended: &Instance) {
    assert!(failure(ended).ends_with(": it was cancelled"), "{ended:?}");
    let left: Order = ended.state.decode("state").expect("an order");
    assert_eq!(left.done, ["reserve", "release"]);
}

async fn busy(_: Order, _: Cx<Log>) -> ActResult<Order> {
    Err("the bank is closed".into())
}

async fn a_saga_that_waits_for_whatever_is_undone_when_it_is_cancelled(kit: Kit) {
    let hear = |order: Order, _: Answers<bool>| Ok(order);
    let nobody = |_: &Order| vec![NewInstance::named("nobody", 1, crate::kit::at("s")); 2];
    let later = Retry::times(3).backoff(HOUR, HOUR);
    let flows = [
        (undone(signal(APPROVAL, approve).timeout(HOUR)), Status::AwaitingSignal),
        (undone(sleep("rest", |_: &Order| HOUR)), Status::Scheduled),
        (undone(act(busy).retry(later)), Status::Scheduled),
        (undone(dispatch("ask", |_: &Order| Unit::each([1, 2]), hear)), Status::AwaitingCompletion),
        (undone(each("items", nobody)), Status::AwaitingChildren),
    ];
    for (flow, status) in flows {
        let shop = Shop::open(&kit, flow).await;
        let id = parked(&shop, &kit, status).await;
        assert_eq!(shop.client().cancel(id).await.expect("a live target"), Cancel::Requested);
        assert_undone(&shop.ended(id).await);
        assert_eq!(shop.log(), ["reserve", "release"], "while it was {status}");
        let again = shop.client().cancel(id).await.expect("an answer");
        assert_eq!(again, Cancel::AlreadyEnded(Status::Failed));
        let children = kit.list(Filter { parent: Some(id), ..Filter::default() }).await;
        assert!(children.iter().all(|child| child.status == Status::Cancelled), "{children:?}");
        let open = InteractionFilter { instance: Some(id), ..InteractionFilter::default() };
        let open = shop.client().interactions(open).await.expect("a read").items;
        assert!(open.iter().all(|asked| !asked.status.is_open()), "{open:?}");
        kit.story(id).await;
        shop.engine.shutdown().await;
    }
}

async fn a_second_cancel_ends_it_at_once(kit: Kit) {
    async fn never(_: Order, _: Cx<Log>) -> ActResult<Order> {
        Err("the bank is closed".into())
    }
    let parts = (act(reserve).undo(never), signal(APPROVAL, approve).timeout(HOUR));
    let shop = Shop::open(&kit, Flow::new("f").then(saga("booking", parts).undo_on_cancel())).await;
    let id = parked(&shop, &kit, Status::AwaitingSignal).await;
    assert_eq!(shop.client().cancel(id).await.expect("a live target"), Cancel::Requested);
    assert_eq!(kit.until(id, Status::Scheduled).await.step, "booking/reserve!undo", "it tries again later");
    let ended = shop.client().cancel(id).await.expect("a live target");
    assert_eq!(ended, Cancel::Done { descendants: 0 });
    assert_eq!(kit.status(id).await, Status::Cancelled);
    shop.engine.shutdown().await;

    // Before anybody has looked at the first.
    let shop = Shop::open(&kit, undone(signal(APPROVAL, approve).timeout(HOUR))).await;
    let id = parked(&shop, &kit, Status::AwaitingSignal).await;
    shop.client().pause(id).await.expect("a live target");
    assert_eq!(shop.client().cancel(id).await.expect("a live target"), Cancel::Requested);
    assert_eq!(kit.status(id).await, Status::Runnable);
    assert_eq!(shop.client().cancel(id).await.expect("a live target"), Cancel::Done { descendants: 0 });
    assert_eq!(shop.log(), ["reserve"]);
    shop.engine.shutdown().await;
}

/// Charges, when the test lets it.
async fn slow_charge(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    cx.deps.lock().expect("no panic").push("charging".to_owned());
    while !cx.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    note(order, &cx, "charge")
}

async fn cancelled_while_it_charges(shop: &Shop) -> Instance {
    let id = shop.start(1).await;
    while !shop.log().contains(&"charging".to_owned()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(shop.client().cancel(id).await.expect("a live target"), Cancel::Requested);
    shop.ended(id).await
}

async fn an_act_that_is_running_is_done_first_and_then_undone(kit: Kit) {
    let parts = (act(reserve).undo(release), act(slow_charge).undo(refund), act(ship));
    let shop = Shop::open(&kit, Flow::new("f").then(saga("booking", parts).undo_on_cancel())).await;
    let ended = cancelled_while_it_charges(&shop).await;
    assert_eq!(failure(&ended), "booking/ship: it was cancelled");
    assert_eq!(shop.log(), ["reserve", "charging", "charge", "refund", "release"]);
    shop.engine.shutdown().await;
}

async fn a_cancel_with_the_last_act_is_answered_at_the_end_of_the_saga(kit: Kit) {
    let parts = (act(reserve).undo(release), act(slow_charge).undo(refund));
    let flow = Flow::new("f").then(saga("booking", parts).undo_on_cancel()).then(act(ship));
    let shop = Shop::open(&kit, flow).await;
    let ended = cancelled_while_it_charges(&shop).await;
    assert_eq!(failure(&ended), "booking!end: it was cancelled");
    assert_eq!(shop.log(), ["reserve", "charging", "charge", "refund", "release"]);
    shop.engine.shutdown().await;
}

async fn before_and_after_the_saga_a_cancel_ends_it_at_once(kit: Kit) {
    let booking = || saga("booking", act(reserve).undo(release)).undo_on_cancel();
    let flows = [
        Flow::new("before").then(signal(APPROVAL, approve).timeout(HOUR)).then(booking()),
        Flow::new("after").then(booking()).then(signal(APPROVAL, approve).timeout(HOUR)),
    ];
    for flow in flows {
        let shop = Shop::open(&kit, flow).await;
        let id = parked(&shop, &kit, Status::AwaitingSignal).await;
        assert_eq!(shop.client().cancel(id).await.expect("a live target"), Cancel::Done { descendants: 0 });
        assert!(!shop.log().contains(&"release".to_owned()));
        shop.engine.shutdown().await;
    }
}

async fn a_saga_that_does_not_say_so_undoes_nothing(kit: Kit) {
    let parts = (act(reserve).undo(release), signal(APPROVAL, approve).timeout(HOUR));
    let shop = Shop::open(&kit, Flow::new("f").then(saga("booking", parts))).await;
    let id = parked(&shop, &kit, Status::AwaitingSignal).await;
    assert_eq!(shop.client().cancel(id).await.expect("a live target"), Cancel::Done { descendants: 0 });
    assert_eq!(shop.log(), ["reserve"]);
    shop.engine.shutdown().await;
}

async fn children_of_a_cancelled_saga_undo_first(kit: Kit) {
    let log = Log::default();
    let waits = || signal(APPROVAL, approve).timeout(HOUR);
    let inner = move || {
        let parts = (act(charge).undo(refund), waits());
        Flow::<Order, Log>::new("inner").then(saga("payment", parts).undo_on_cancel())
    };
    let child =
        move |order: &Order| inner().build(Log::default()).expect("a flow").instance(order).expect("a state");
    let outer = Flow::new("outer");
    let outer =
        outer.then(saga("booking", (act(reserve).undo(release), call("pay", child))).undo_on_cancel());
    let machines: [Arc<dyn DynMachine>; 2] = [
        Arc::new(inner().build(log.clone()).expect("a flow")),
        Arc::new(outer.build(log.clone()).expect("a flow")),
    ];
    let new = dormouse::NewInstance::named(
        "outer",
        1,
        dormouse::At {
            step: "booking/reserve".into(),
            state: dormouse::Json::encode("state", &Order::default()).expect("a state"),
        },
    );
    let builder = machines.into_iter().fold(kit.engine(), dormouse::EngineBuilder::dyn_machine);
    let engine = builder.start().await.expect("it starts");
    let id = engine.client().start_many([new]).await.expect("a start")[0].id();
    kit.until(id, Status::AwaitingChildren).await;
    let inner = kit.list(Filter { parent: Some(id), ..Filter::default() }).await[0].id;
    kit.until(inner, Status::AwaitingSignal).await;
    let cancelled = engine.client().cancel(id).reason("it rains").await;
    assert_eq!(cancelled.expect("a live target"), Cancel::Requested);
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!(failure(&ended), "booking/pay: it was cancelled: it rains");
    let done = log.lock().expect("no panic").clone();
    assert_eq!(done, ["reserve", "charge", "refund", "release"], "the inner one first");
    assert!(failure(&kit.get(inner).await).contains("it was cancelled: it rains"));
    engine.shutdown().await;
}

async fn whoever_has_not_the_code_cancels_the_same_way(kit: Kit) {
    let shop = Shop::open(&kit, undone(signal(APPROVAL, approve).timeout(HOUR))).await;
    let id = parked(&shop, &kit, Status::AwaitingSignal).await;
    let cancelled = kit.client().cancel(id).reason("the customer called").await;
    assert_eq!(cancelled.expect("a live target"), Cancel::Requested);
    let expected = "booking/approval: it was cancelled: the customer called";
    assert_eq!(failure(&shop.ended(id).await), expected);
    let told: Vec<_> = kit.history(id).await.into_iter().map(|event| event.kind).collect();
    assert!(told.contains(&EventKind::SignalReceived), "it is in its history: {told:?}");
    shop.engine.shutdown().await;
}

async fn a_crash_in_the_middle_of_undoing_goes_on_with_it(kit: Kit) {
    let parts =
        || (act(reserve).undo(release), act(charge).undo(refund), signal(APPROVAL, approve).timeout(HOUR));
    let flow = || Flow::new("f").then(scene("desk", saga("booking", parts()).undo_on_cancel()));
    let shop = Shop::open(&kit, flow()).await;
    let id = parked(&shop, &kit, Status::AwaitingSignal).await;
    shop.client().pause(id).await.expect("a live target");
    shop.client().cancel(id).await.expect("a live target");
    // Nobody has run it since: another engine finds the request where the first one left it.
    shop.engine.shutdown().await;
    let heir = Shop::open(&kit, flow()).await;
    heir.client().resume(id).await.expect("a live target");
    let ended = heir.ended(id).await;
    assert_eq!(failure(&ended), "desk/booking/approval: it was cancelled");
    assert_eq!(heir.log(), ["refund", "release"]);
    heir.engine.shutdown().await;
}

async fn a_retry_forgets_that_it_was_cancelled(kit: Kit) {
    let shop = Shop::open(&kit, undone(signal(APPROVAL, approve).timeout(HOUR))).await;
    let id = parked(&shop, &kit, Status::AwaitingSignal).await;
    shop.client().pause(id).await.expect("a live target");
    assert_eq!(shop.client().cancel(id).await.expect("a live target"), Cancel::Requested);
    assert_eq!(shop.client().cancel(id).await.expect("a live target"), Cancel::Done { descendants: 0 });
    shop.client().retry(id).await.expect("a cancelled instance");
    shop.client().resume(id).await.expect("a live target");
    kit.until(id, Status::AwaitingSignal).await;
    assert!(shop.client().inbox(id).await.expect("a read").is_empty());
    shop.approve(id, "Ada").await;
    assert_eq!(shop.outcome(id).await.done, ["reserve", "ship"]);
    shop.engine.shutdown().await;
}
