//! What a flow would do, told without doing it, and what a deploy would do to those under way.

use dormouse::flow::{Flow, act, dispatch, scene, signal, sleep};
use dormouse::prelude::*;
use dormouse::{Answers, Difference, DifferenceKind, Error, Happening, Json, Look, NewSignal, Status};

use super::shop::*;
use crate::kit::Kit;

suite![
    what_a_signal_would_do_is_told_and_nothing_is_done,
    what_a_timeout_would_do_is_told_with_every_way_that_is_not_known,
    what_cannot_happen_or_is_not_known_is_refused,
    a_flow_that_fits_what_is_under_way_has_no_difference,
    a_part_that_is_gone_or_moved_under_waiting_instances_is_found,
    a_state_that_no_longer_decodes_is_found_with_counts_and_examples,
    a_wait_that_changed_under_waiting_instances_is_found,
];

/// What is told of each way, a step at a time.
fn told(ways: &[Vec<Look>]) -> Vec<Vec<String>> {
    let line = |look: &Look| format!("{}: {} ({})", look.step, look.what, look.status);
    ways.iter().map(|way| way.iter().map(line).collect()).collect()
}

fn approved(by: &str) -> Happening {
    Happening::Signal(NewSignal::of(APPROVAL, &yes(by)).expect("it is JSON"))
}

async fn what_a_signal_would_do_is_told_and_nothing_is_done(kit: Kit) {
    let wait = signal(APPROVAL, approve).timeout(HOUR);
    let ship = act(ship).gives(|mut order: Order| {
        order.done.push("ship".to_owned());
        order
    });
    let shop = Shop::open(&kit, Flow::new("f").then(wait).then(ship)).await;
    let id = shop.start(2000).await;
    kit.until(id, Status::AwaitingSignal).await;
    let (before, story) = (kit.get(id).await, kit.history(id).await.len());
    let foresight = shop.client().what_if(id, approved("Ada")).await.expect("it is known");
    assert!(foresight.is_complete);
    assert_eq!(
        told(&foresight.ways),
        [
            ["approval: goes on to ship (runnable)", "ship: is done, is done (done)"],
            ["approval: goes on to ship (runnable)", "ship: fails for good (failed)"],
        ]
    );
    let output = foresight.ways[0][1].state.as_ref().expect("it is known");
    let output: Order = output.decode("output").expect("an order");
    assert_eq!((output.approved_by, output.done), (vec!["Ada".to_owned()], vec!["ship".to_owned()]));
    // A signal that none of its parts waits for would be refused.
    let other = Happening::Signal(NewSignal::new("other", Json::null()));
    let refused = shop.client().what_if(id, other).await;
    assert!(matches!(refused, Err(Error::UndeclaredSignal { .. })), "{refused:?}");
    assert_eq!((kit.get(id).await, kit.history(id).await.len()), (before, story), "nothing was changed");
    assert_eq!(shop.log(), Vec::<String>::new(), "nothing was run");
    shop.engine.shutdown().await;
}

async fn what_a_timeout_would_do_is_told_with_every_way_that_is_not_known(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let id = shop.start(2000).await;
    kit.until(id, Status::AwaitingSignal).await;
    let foresight = shop.client().what_if(id, Happening::Deadline).await.expect("it is known");
    let ends: Vec<_> = foresight.ways.iter().map(|way| way.last().expect("a step").status).collect();
    assert_eq!(ends, [Status::Done, Status::Failed]);
    // Nobody says what `escalate` gives, so the state after it is not told.
    assert_eq!(foresight.ways[0][0].state, None);
    shop.engine.shutdown().await;
}

async fn what_cannot_happen_or_is_not_known_is_refused(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let (large, small) = (shop.start(2000).await, shop.start(1).await);
    kit.until(large, Status::AwaitingSignal).await;
    shop.ended(small).await;
    let client = shop.client();
    let refused = |id, happening| {
        let client = client.clone();
        async move { client.what_if(id, happening).await.expect_err("it cannot be").to_string() }
    };
    assert!(
        refused(large, Happening::Children).await.contains("this cannot happen to it in its present status")
    );
    assert!(refused(small, approved("Ada")).await.contains("it has ended"));
    let malformed = Happening::Signal(NewSignal::new("approval", Json::null()));
    assert!(matches!(client.what_if(large, malformed).await, Err(Error::PayloadRefused { .. })));
    // A client without the code can say nothing of it.
    let told = kit.client().what_if(large, Happening::Deadline).await.expect_err("no code").to_string();
    assert_eq!(
        told,
        "machine approval version 1 is not registered in this program: use a program that registers it"
    );
    shop.engine.shutdown().await;
}

/// What a deploy of this flow would find.
async fn diff(kit: &Kit, flow: Flow<Order, Log>) -> Vec<Difference> {
    let machine = flow.build(Log::default()).expect("it is well formed");
    let client = kit.engine().flow(&machine).client();
    let mut looked_at = 0;
    let diff = client.diff(|live| looked_at = live).await.expect("a read");
    assert_eq!(looked_at, diff.live);
    diff.differences
}

async fn a_flow_that_fits_what_is_under_way_has_no_difference(kit: Kit) {
    let ask = |order: &Order| Unit::one(order.total);
    let hear = |order: Order, _: Answers<bool>| Ok(order);
    let flow = || {
        let parts = (signal(APPROVAL, approve).timeout(HOUR), dispatch("bank", ask, hear));
        Flow::new("f").then(scene("pay", parts)).then(sleep("rest", |_: &Order| HOUR)).then(act(ship))
    };
    let shop = Shop::open(&kit, flow()).await;
    let (waits, asks) = (shop.start(1).await, shop.start(2).await);
    shop.approve(asks, "Ada").await;
    kit.until(waits, Status::AwaitingSignal).await;
    kit.until(asks, Status::AwaitingCompletion).await;
    assert_eq!(diff(&kit, flow()).await, []);
    shop.engine.shutdown().await;
}

async fn a_part_that_is_gone_or_moved_under_waiting_instances_is_found(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let ids = [shop.start(2000).await, shop.start(3000).await];
    for id in ids {
        kit.until(id, Status::AwaitingSignal).await;
    }
    let moved = Flow::new("approval").then(scene("office", signal(APPROVAL, approve).timeout(HOUR)));
    let found = diff(&kit, moved.then(act(ship))).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].kind, found[0].count), (DifferenceKind::StepGone, 2));
    assert_eq!(found[0].reason, "step \"approval\" no longer exists; is it \"office/approval\" now?");
    assert_eq!(found[0].examples, [ids[1], ids[0]]);
    let found = diff(&kit, approval().version(2)).await;
    assert_eq!(found[0].kind, DifferenceKind::NoCode);
    shop.engine.shutdown().await;
}

async fn a_state_that_no_longer_decodes_is_found_with_counts_and_examples(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let good = shop.start(2000).await;
    let mut broken = Vec::new();
    for state in [r#"{"total":"much"}"#, r#"{"total":"much"}"#, r#"{"totals":1}"#] {
        let mut new = shop.new.clone().queue("nowhere");
        new.at.state = Json::parse("state", state).expect("JSON");
        // Past the doors, as a version that took them would have stored them.
        broken.push(kit.store.insert(vec![new]).await.expect("an insert").value[0].id());
    }
    kit.until(good, Status::AwaitingSignal).await;
    let found = diff(&kit, approval()).await;
    let counts: Vec<_> = found.iter().map(|found| (found.kind, found.count)).collect();
    assert_eq!(counts, [(DifferenceKind::StateUnreadable, 2), (DifferenceKind::StateUnreadable, 1)]);
    let much = found.iter().find(|found| found.count == 2).expect("two of a kind");
    assert_eq!(much.examples, [broken[1], broken[0]]);
    assert!(much.reason.contains("much"), "{much:?}");
    shop.engine.shutdown().await;
}

async fn a_wait_that_changed_under_waiting_instances_is_found(kit: Kit) {
    let shop = Shop::open(&kit, approval()).await;
    let id = shop.start(2000).await;
    kit.until(id, Status::AwaitingSignal).await;
    let acts = Flow::new("approval").then(act(ship).named("approval"));
    let found = diff(&kit, acts).await;
    assert_eq!(found[0].kind, DifferenceKind::WaitChanged, "{found:?}");
    assert!(found[0].reason.ends_with("but this code waits for nothing there"), "{found:?}");
    let ask = |order: &Order| Unit::one(order.total);
    let asks =
        Flow::new("approval").then(dispatch("approval", ask, |order: Order, _: Answers<bool>| Ok(order)));
    assert_eq!(diff(&kit, asks).await[0].kind, DifferenceKind::WaitChanged);
    shop.engine.shutdown().await;
}
