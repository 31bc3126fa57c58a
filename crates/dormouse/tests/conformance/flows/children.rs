//! Parts of flows that run children: the list is fixed when the part is entered.

use std::sync::atomic::{AtomicU64, Ordering};

use dormouse::flow::{ActResult, Child, Flow, act, each, parallel, saga};
use dormouse::prelude::*;
use dormouse::store::Filter;
use dormouse::{ChildView, Engine, InstanceId, Status};

use super::shop::*;
use crate::kit::{Kit, SOON};

suite![
    a_join_that_removes_or_adds_rows_changes_nothing_about_which_children_run,
    a_list_too_long_to_keep_is_made_again_of_the_state_it_was_entered_with,
    a_long_list_that_comes_out_different_fails_the_part,
    what_is_left_to_be_spawned_keeps_its_digits,
    a_part_that_fails_fast_ends_at_the_first_failure_and_cancels_the_others,
    a_part_that_fails_fast_and_does_not_fail_is_joined,
    branches_in_parallel_may_fail_fast,
];

fn doubles(order: &Order) -> Vec<NewInstance> {
    (0..order.total).map(NewInstance::job::<Double>).collect()
}

/// So long a list that it is not kept with the state.
fn many(order: &Order) -> Vec<NewInstance> {
    doubles(order).into_iter().enumerate().map(|(n, new)| new.lane(format!("{n:0>240}"))).collect()
}

fn note_outputs(mut order: Order, children: &[ChildView]) -> ActResult<Order> {
    for child in children {
        order.done.push(child.output::<u64>()?.ok_or("it failed")?.to_string());
    }
    Ok(order)
}

async fn run(kit: &Kit, flow: Flow<Order, Log>, total: u64) -> (Engine, InstanceId) {
    let machine = flow.build(Log::default()).expect("it is well formed");
    let new = machine.instance(&Order::default()).expect("a state");
    let engine = kit.engine().flow(&machine).job(Double).start().await.expect("it starts");
    let id = start(&engine.client(), new, total).await;
    (engine, id)
}

fn doubled(total: u64) -> Vec<String> {
    (0..total).map(|n| (n * 2).to_string()).collect()
}

async fn a_join_that_removes_or_adds_rows_changes_nothing_about_which_children_run(kit: Kit) {
    let removes = |order: Order, children: &[ChildView]| {
        let order = note_outputs(order, children)?;
        Ok(Order { total: order.total - children.len() as u64, ..order })
    };
    let adds = |order: Order, children: &[ChildView]| {
        let order = note_outputs(order, children)?;
        Ok(Order { total: order.total + 5, ..order })
    };
    for (name, flow) in [
        ("removes", Flow::new("removes").then(each("rows", doubles).in_flight(3).join(removes))),
        ("adds", Flow::new("adds").then(each("rows", doubles).in_flight(3).join(adds))),
    ] {
        let (engine, id) = run(&kit, flow, 8).await;
        let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
        assert_eq!(order(&ended).done, doubled(8), "{name}");
        let spawned = kit.list(Filter { parent: Some(id), ..Filter::default() }).await.len();
        assert_eq!(spawned, 8, "{name}");
        engine.shutdown().await;
    }
}

async fn a_list_too_long_to_keep_is_made_again_of_the_state_it_was_entered_with(kit: Kit) {
    let removes = |order: Order, children: &[ChildView]| {
        let order = note_outputs(order, children)?;
        Ok(Order { total: order.total - children.len() as u64, ..order })
    };
    // 13 would fail.
    let rows = |order: &Order| many(order).into_iter().filter(|new| new.at.state.as_str() != "13").collect();
    let flow = Flow::new("f").then(each("rows", rows).in_flight(100).join(removes));
    let (engine, id) = run(&kit, flow, 250).await;
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    let expected: Vec<_> = doubled(250).into_iter().filter(|doubled| doubled != "26").collect();
    assert_eq!(order(&ended).done, expected);
    for event in kit.history(id).await {
        assert!(event.state.as_str().len() < 16 * 1024, "the list is not kept with the state");
    }
    engine.shutdown().await;
}

async fn a_long_list_that_comes_out_different_fails_the_part(kit: Kit) {
    let calls = AtomicU64::new(0);
    let rows = move |order: &Order| {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        many(&Order { total: 300 + call, ..order.clone() }).into_iter().skip(14).collect()
    };
    let (engine, id) = run(&kit, Flow::new("f").then(each("rows", rows).in_flight(10)), 1).await;
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert!(failure(&ended).contains("is not the one it had when the part was entered"), "{ended:?}");
    engine.shutdown().await;
}

/// A float that comes out different if it is read as one and written again, and a number that no integer type holds.
async fn what_is_left_to_be_spawned_keeps_its_digits(kit: Kit) {
    const DIGITS: &str = r#"{"b":0.10000000000000000001,"a":123456789012345678901234567890}"#;
    let rows = |_: &Order| {
        let state = || dormouse::Json::parse("state", DIGITS).expect("it is JSON");
        (0..3)
            .map(|_| NewInstance::named("nobody", 1, dormouse::At { step: "s".into(), state: state() }))
            .collect()
    };
    let join = |order: Order, _: &[ChildView]| Ok(order);
    let (engine, id) = run(&kit, Flow::new("f").then(each("rows", rows).in_flight(1).join(join)), 1).await;
    for ended in 1..=3 {
        let children = loop {
            let children = kit.list(Filter { parent: Some(id), ..Filter::default() }).await;
            if children.len() == ended {
                break children;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        };
        assert!(children.iter().all(|child| child.state.as_str() == DIGITS), "{children:?}");
        for child in children.iter().filter(|child| !child.status.is_terminal()) {
            engine.client().cancel(child.id).await.expect("a cancel");
        }
    }
    engine.client().wait_end(id, SOON).await.expect("it ends");
    engine.shutdown().await;
}

/// One that nobody runs, so that it never ends by itself.
fn endless() -> NewInstance {
    NewInstance::named("nobody", 1, dormouse::At { step: "s".into(), state: dormouse::Json::null() })
}

async fn a_part_that_fails_fast_ends_at_the_first_failure_and_cancels_the_others(kit: Kit) {
    let rows = |_: &Order| {
        let first = vec![endless(), NewInstance::job::<Double>(13), endless()];
        first.into_iter().chain((0..5).map(NewInstance::job::<Double>)).collect()
    };
    let never = |_: Order, _: &[ChildView]| -> ActResult<Order> { panic!("a join is not asked") };
    let parts = (act(reserve).undo(release), each("rows", rows).in_flight(3).fail_fast().join(never));
    let (engine, id) = run(&kit, Flow::new("f").then(saga("booking", parts)), 1).await;
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    let children = kit.list(Filter { parent: Some(id), ..Filter::default() }).await;
    let failed = children.iter().find(|child| child.status == Status::Failed).expect("one has failed").id;
    let expected = format!("booking/rows: its child {failed} is failed: nobody doubles that");
    assert_eq!(failure(&ended), expected, "the failure is told, and not what was cancelled for it");
    let mut statuses: Vec<_> = children.iter().map(|child| child.status).collect();
    statuses.sort_unstable();
    assert_eq!(
        statuses,
        [Status::Failed, Status::Cancelled, Status::Cancelled],
        "the others are not spawned"
    );
    let left: Order = ended.state.decode("state").expect("an order");
    assert_eq!(left.done, ["reserve", "release"]);
    engine.shutdown().await;
}

async fn a_part_that_fails_fast_and_does_not_fail_is_joined(kit: Kit) {
    let flow = Flow::new("f").then(each("rows", doubles).in_flight(3).fail_fast().join(note_outputs));
    let (engine, id) = run(&kit, flow, 8).await;
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!(order(&ended).done, doubled(8));
    engine.shutdown().await;
}

async fn branches_in_parallel_may_fail_fast(kit: Kit) {
    let branches: [(&'static str, Child<Order>); 2] =
        [("endless", |_| endless()), ("failing", |_| NewInstance::job::<Double>(13))];
    let (engine, id) = run(&kit, Flow::new("f").then(parallel("both", branches).fail_fast()), 1).await;
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert!(failure(&ended).ends_with("is failed: nobody doubles that"), "{ended:?}");
    let children = kit.list(Filter { parent: Some(id), ..Filter::default() }).await;
    assert!(children.iter().all(|child| child.status.is_terminal()), "{children:?}");
    engine.shutdown().await;
}
