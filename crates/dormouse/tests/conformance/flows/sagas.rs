//! What undoes a saga: tried again, given up, and told.

use std::time::Duration;

use dormouse::flow::{ActResult, Cx, Flow, act, saga};
use dormouse::prelude::*;
use dormouse::{EventKind, Status};

use super::shop::*;
use crate::kit::Kit;

suite![
    a_saga_with_nothing_to_undo_fails_at_once,
    an_undo_that_fails_at_first_is_tried_again,
    an_undo_that_never_succeeds_does_not_hold_back_the_others,
    an_undo_that_fails_for_good_is_not_tried_again,
];

const AT_ONCE: (Duration, Duration) = (Duration::ZERO, Duration::ZERO);

/// Fails at its first try, and never again.
async fn unsure(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    match cx.attempt() {
        0 => Err("the bank is closed".into()),
        _ => note(order, &cx, "refund"),
    }
}

async fn never(_: Order, cx: Cx<Log>) -> ActResult<Order> {
    cx.deps.lock().expect("no panic").push("no refund".to_owned());
    Err("the bank is gone".into())
}

async fn never_again(_: Order, cx: Cx<Log>) -> ActResult<Order> {
    cx.deps.lock().expect("no panic").push("no refund".to_owned());
    Err(Final::new("the account is closed").into())
}

async fn a_saga_with_nothing_to_undo_fails_at_once(kit: Kit) {
    // One that has undos, of which none was reached; and one that has none.
    let unreached = saga("booking", (act(ship), act(charge).undo(refund)));
    let without = saga("booking", (act(charge), act(ship)));
    for (name, parts) in [("unreached", unreached), ("without", without)] {
        let shop = Shop::open(&kit, Flow::new(name).then(parts)).await;
        let id = shop.start(13).await;
        assert!(failure(&shop.ended(id).await).ends_with("nobody ships that"));
        let steps: Vec<_> = kit.history(id).await.into_iter().map(|event| event.step).collect();
        assert!(steps.iter().all(|step| !step.contains('!')), "{steps:?}");
        shop.engine.shutdown().await;
    }
}

async fn an_undo_that_fails_at_first_is_tried_again(kit: Kit) {
    let parts = (act(reserve).undo(release), act(charge).undo(unsure), act(ship));
    let shop = Shop::open(&kit, Flow::new("f").then(saga("booking", parts))).await;
    let id = shop.start(13).await;
    let waits = kit.until(id, Status::Scheduled).await;
    assert_eq!((waits.step.as_str(), waits.attempt), ("booking/charge!undo", 1));
    assert_eq!(waits.last_error.as_deref(), Some("the bank is closed"));
    assert_eq!(shop.log(), ["reserve", "charge"], "nothing before it is undone meanwhile");
    kit.advance(Duration::from_secs(1));
    assert_eq!(failure(&shop.ended(id).await), "booking/ship: nobody ships that", "for the first reason");
    assert_eq!(shop.log(), ["reserve", "charge", "refund", "release"]);
    shop.engine.shutdown().await;
}

async fn an_undo_that_never_succeeds_does_not_hold_back_the_others(kit: Kit) {
    let thrice = Retry::times(3).backoff(AT_ONCE.0, AT_ONCE.1);
    let parts = (
        act(reserve).undo(release),
        act(charge).undo(never).undo_retry(thrice),
        act(escalate).undo(refund),
        act(charge).named("fee").undo(never).undo_retry(Retry::never()),
        act(ship),
    );
    let shop = Shop::open(&kit, Flow::new("f").then(saga("booking", parts))).await;
    let id = shop.start(13).await;
    let ended = shop.ended(id).await;
    assert_eq!(
        failure(&ended),
        "booking/ship: nobody ships that; booking/fee could not be undone: the bank is gone; \
            booking/charge could not be undone: the bank is gone"
    );
    let left: Order = ended.state.decode("state").expect("an order");
    let done = ["reserve", "charge", "escalate", "charge", "refund", "release"];
    assert_eq!(left.done, done, "the others are undone");
    assert_eq!(shop.log().iter().filter(|what| *what == "no refund").count(), 1 + 3);
    let retried = kit.story(id).await.into_iter().filter(|kind| *kind == EventKind::StepRetried).count();
    assert_eq!(retried, 2);
    shop.engine.shutdown().await;
}

async fn an_undo_that_fails_for_good_is_not_tried_again(kit: Kit) {
    let parts = (act(reserve).undo(release), act(charge).undo(never_again), act(ship));
    let shop = Shop::open(&kit, Flow::new("f").then(saga("booking", parts))).await;
    let id = shop.start(13).await;
    let expected =
        "booking/ship: nobody ships that; booking/charge could not be undone: the account is closed";
    assert_eq!(failure(&shop.ended(id).await), expected);
    assert_eq!(shop.log(), ["reserve", "charge", "no refund", "release"]);
    shop.engine.shutdown().await;
}
