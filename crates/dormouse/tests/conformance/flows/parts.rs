//! How the parts of a flow follow each other, what a saga undoes, and what a crash does to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::flow::{Cx, Flow, act, branch, call, dispatch, each, fail, repeat, saga, sleep};
use dormouse::prelude::*;
use dormouse::store::{Filter, InteractionFilter};
use dormouse::{Answers, DynMachine, Engine, Error, EventKind, Instance, Status};

use super::shop::*;
use crate::faulty::Faulty;
use crate::kit::{Kit, SOON};

suite![
    a_branch_tells_which_way_it_took,
    a_repeat_goes_round_while_it_should_and_not_beyond_its_bound,
    children_are_spawned_a_few_at_a_time_and_joined,
    another_flow_is_called_and_its_failure_is_the_calls,
    the_outside_is_asked_and_its_answers_are_taken_into_the_state,
    the_outside_is_asked_after_a_sleep_too,
    a_sleep_may_be_the_last_part,
    an_act_is_tried_as_often_as_it_says_and_no_longer_than_it_may,
    a_saga_undoes_what_was_done_in_reverse_order,
    what_a_saga_did_is_not_undone_when_a_later_part_fails,
    a_crash_at_every_commit_leads_to_the_same_end,
];

async fn a_branch_tells_which_way_it_took(kit: Kit) {
    let decision = branch("size")
        .case("large", |order: &Order| order.total > 1000, (act(reserve), act(charge)))
        .case(
            "free",
            |order| order.total == 0,
            fail("nothing", |_: &Order| "there is nothing to ship".to_owned()),
        )
        .otherwise_nothing();
    let shop = Shop::open(&kit, Flow::new("f").then(decision).then(act(ship))).await;
    let (large, small, free) = (shop.start(5000).await, shop.start(1).await, shop.start(0).await);
    assert_eq!(shop.outcome(large).await.done, ["reserve", "charge", "ship"]);
    assert_eq!(shop.outcome(small).await.done, ["ship"]);
    assert!(failure(&shop.ended(free).await).contains("there is nothing to ship"));
    for (id, way) in [(large, "large"), (small, "otherwise")] {
        let told = kit.history(id).await[1].state.clone();
        assert!(told.as_str().contains(&format!(r#""chosen":{{"size":"{way}"}}"#)), "{told:?}");
    }
    assert_eq!(kit.history(large).await[1].step, "size/large/reserve");
    shop.engine.shutdown().await;
}

async fn a_repeat_goes_round_while_it_should_and_not_beyond_its_bound(kit: Kit) {
    let enough =
        |rounds: usize| repeat("rounds", move |order: &Order| order.done.len() < rounds, act(reserve));
    let shop = Shop::open(&kit, Flow::new("f").then(enough(3).at_most(3)).then(act(ship))).await;
    let id = shop.start(1).await;
    assert_eq!(shop.outcome(id).await.done, ["reserve", "reserve", "reserve", "ship"]);
    shop.engine.shutdown().await;
    let shop = Shop::open(&kit, Flow::new("g").then(enough(4).at_most(3))).await;
    let id = shop.start(1).await;
    assert!(failure(&shop.ended(id).await).contains("it would go on after 3 rounds"));
    shop.engine.shutdown().await;
}

async fn children_are_spawned_a_few_at_a_time_and_joined(kit: Kit) {
    let items = |order: &Order| (0..order.total).map(NewInstance::job::<Double>).collect();
    let sum = |mut order: Order, doubled: &[dormouse::ChildView]| {
        assert!(doubled.len() <= 3, "three at a time");
        for one in doubled {
            order.done.push(one.output::<u64>()?.ok_or("it failed")?.to_string());
        }
        Ok(order)
    };
    let flow = Flow::new("f").then(each("items", items).in_flight(3).join(sum));
    let machine = flow.build(Log::default()).expect("it is well formed");
    let new = machine.instance(&Order::default()).expect("a state");
    let engine = kit.engine().flow(&machine).job(Double).start().await.expect("it starts");
    let id = start(&engine.client(), new, 8).await;
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!(order(&ended).done, ["0", "2", "4", "6", "8", "10", "12", "14"]);
    let spawned = kit.story(id).await.into_iter().filter(|kind| *kind == EventKind::ChildrenSpawned).count();
    assert_eq!(spawned, 3);
    engine.shutdown().await;
}

async fn another_flow_is_called_and_its_failure_is_the_calls(kit: Kit) {
    let shipping =
        || Flow::<Order, Log>::new("shipping").then(act(ship)).build(Log::default()).expect("a flow");
    let child = move |order: &Order| shipping().instance(order).expect("a state");
    let flow = Flow::new("f").then(call("shipping", child)).then(act(charge));
    let others = [Arc::new(shipping()) as Arc<dyn DynMachine>];
    let shop = Shop::open_with(&kit, flow, others).await;
    let (good, bad) = (shop.start(1).await, shop.start(13).await);
    assert_eq!(shop.outcome(good).await.done, ["charge"]);
    let told = shop.ended(bad).await;
    assert!(failure(&told).contains("is failed: nobody ships that"), "{told:?}");
    shop.engine.shutdown().await;
}

async fn the_outside_is_asked_and_its_answers_are_taken_into_the_state(kit: Kit) {
    let ask = |order: &Order| Unit::each(0..order.total).item_timeout(HOUR);
    let hear = |mut order: Order, answers: Answers<String>| {
        order.approved_by = answers.outputs();
        Ok(order)
    };
    let shop = Shop::open(&kit, Flow::new("f").then(dispatch("review", ask, hear)).then(act(ship))).await;
    let id = shop.start(2).await;
    assert_eq!(kit.until(id, Status::AwaitingCompletion).await.step, "review");
    let open = shop.client().interactions(InteractionFilter::default()).await.expect("a read").items;
    for (interaction, who) in open.iter().zip(["Ada", "Bob"]).rev() {
        shop.client().complete(interaction.id, &who).await.expect("it is open");
    }
    let order = shop.outcome(id).await;
    assert_eq!(
        (order.approved_by, order.done),
        (["Ada", "Bob"].map(str::to_owned).into(), vec!["ship".to_owned()])
    );
    shop.engine.shutdown().await;
}

async fn the_outside_is_asked_after_a_sleep_too(kit: Kit) {
    let ask = |order: &Order| Unit::one(order.total).timeout(HOUR);
    let hear = |mut order: Order, answers: Answers<String>| {
        order.approved_by = vec![answers.one()?];
        Ok(order)
    };
    let rest = sleep("rest", |_: &Order| HOUR);
    let shop = Shop::open(&kit, Flow::new("f").then(rest).then(dispatch("review", ask, hear))).await;
    let id = shop.start(2).await;
    kit.until(id, Status::Scheduled).await;
    kit.advance(HOUR);
    kit.until(id, Status::AwaitingCompletion).await;
    let open = shop.client().interactions(InteractionFilter::default()).await.expect("a read").items;
    shop.client().complete(open[0].id, &"Ada").await.expect("it is open");
    assert_eq!(shop.outcome(id).await.approved_by, ["Ada"]);
    shop.engine.shutdown().await;
}

async fn a_sleep_may_be_the_last_part(kit: Kit) {
    let flow = Flow::new("f").then(act(ship)).then(sleep("rest", |_: &Order| HOUR));
    let shop = Shop::open(&kit, flow).await;
    let id = shop.start(1).await;
    kit.until(id, Status::Scheduled).await;
    kit.advance(HOUR);
    assert_eq!(shop.outcome(id).await.done, ["ship"]);
    shop.engine.shutdown().await;
}

async fn an_act_is_tried_as_often_as_it_says_and_no_longer_than_it_may(kit: Kit) {
    let stuck = |order: Order, cx: Cx<Log>| async move {
        note(order, &cx, "try")?;
        std::future::pending().await
    };
    let again = Retry::times(2).backoff(Duration::ZERO, Duration::ZERO);
    let stuck = act(stuck).named("stuck").retry(again).timeout(Duration::from_millis(10));
    let shop = Shop::open(&kit, Flow::new("f").then(stuck)).await;
    let id = shop.start(1).await;
    assert!(failure(&shop.ended(id).await).contains("it ran longer than its limit of 10ms"));
    let tries = shop.log().len();
    assert_eq!(kit.get(id).await.attempt as usize, tries - 1);
    shop.engine.shutdown().await;
}

fn trip() -> Flow<Order, Log> {
    let parts = (act(reserve).undo(release), act(charge).undo(refund), act(ship));
    Flow::new("trip").then(saga("booking", parts)).then(sleep("rest", |_: &Order| Duration::ZERO))
}

async fn a_saga_undoes_what_was_done_in_reverse_order(kit: Kit) {
    let shop = Shop::open(&kit, trip()).await;
    let (good, bad) = (shop.start(1).await, shop.start(13).await);
    assert_eq!(shop.outcome(good).await.done, ["reserve", "charge", "ship"]);
    let ended = shop.ended(bad).await;
    assert_eq!(failure(&ended), "booking/ship: nobody ships that");
    let steps: Vec<_> = kit.history(bad).await.into_iter().map(|event| event.step).collect();
    let undone = ["booking/charge!undo", "booking/reserve!undo"];
    assert!(steps.windows(2).any(|pair| pair == undone), "{steps:?}");
    shop.engine.shutdown().await;
}

async fn what_a_saga_did_is_not_undone_when_a_later_part_fails(kit: Kit) {
    let flow =
        Flow::new("f").then(saga("booking", (act(reserve).undo(release), act(charge)))).then(act(ship));
    let shop = Shop::open(&kit, flow).await;
    let id = shop.start(13).await;
    assert!(failure(&shop.ended(id).await).contains("nobody ships that"));
    assert_eq!(shop.log(), ["reserve", "charge"]);
    shop.engine.shutdown().await;
}

/// Every part there is, with and without a failure that a saga answers. A crash comes before each commit in turn, and
/// after it.
async fn a_crash_at_every_commit_leads_to_the_same_end(kit: Kit) {
    let run = async |total: u64, commits_max: usize| -> (bool, Instance) {
        let commits = Arc::new(AtomicUsize::new(0));
        let counted = commits.clone();
        let refuse = move |batch: &[dormouse::store::Commit]| {
            let before = counted.fetch_add(batch.len(), Ordering::SeqCst);
            (before + batch.len() > commits_max).then(|| Error::Busy("the crash is near".into()))
        };
        let engine = |store| async {
            let machine = booking().build(Log::default()).expect("it is well formed");
            let new = machine.instance(&Order::default()).expect("a state");
            let builder = Engine::on(store)
                .worker_name("w")
                .lease(Duration::from_secs(u32::MAX.into()))
                .poll(Duration::from_millis(20));
            (builder.flow(&machine).job(Double).start().await.expect("it starts"), new)
        };
        let (doomed, new) = engine(Arc::new(Faulty::on(kit.store.clone()).refuse_commit(refuse))).await;
        let id = start(&doomed.client(), new, total).await;
        for by in ["Ada", "Bob"] {
            doomed.client().signal(id, APPROVAL, yes(by)).await.expect("a live target");
        }
        let crashed = loop {
            if commits.load(Ordering::SeqCst) > commits_max {
                break true;
            }
            if kit.status(id).await.is_terminal() {
                break false;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        drop(doomed);
        let (heir, _) = engine(kit.store.clone()).await;
        let ended = heir.client().wait_end(id, SOON).await.expect("it ends");
        kit.story(id).await;
        heir.shutdown().await;
        (crashed, ended)
    };
    for total in [5000, 13] {
        let mut crashes = 0;
        for commits_max in 0.. {
            let (crashed, ended) = run(total, commits_max).await;
            assert_booking(total, &ended);
            if !crashed {
                break;
            }
            crashes += 1;
        }
        assert!(crashes >= 10, "it crashed at each of its {crashes} commits");
    }
    let left = kit.list(Filter::default()).await.into_iter().filter(|row| !row.status.is_terminal()).count();
    assert_eq!(left, 0, "nothing is left behind");
}
