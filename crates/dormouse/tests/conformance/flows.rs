//! Flows on every store: what the signals of a flow mean, how its parts follow each other, what a saga undoes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::flow::{
    ActResult, Child, Cx, Flow, FlowMachine, act, branch, call, each, fail, parallel, repeat, saga, scene,
    signal, sleep,
};
use dormouse::prelude::*;
use dormouse::store::Filter;
use dormouse::{
    Client, Delivered, DynMachine, Engine, EngineBuilder, Error, EventKind, Instance, InstanceId, NewSignal,
    Status, Target,
};

use crate::faulty::Faulty;
use crate::kit::{Kit, SOON};

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
    cancelling_closes_the_wait_and_its_deadline_changes_nothing,
    signals_sent_rapidly_and_in_any_order_are_all_kept,
    many_flows_are_signalled_at_once,
    a_branch_tells_which_way_it_took,
    a_repeat_goes_round_while_it_should_and_not_beyond_its_bound,
    children_are_spawned_a_few_at_a_time_and_joined,
    another_flow_is_called_and_its_failure_is_the_calls,
    a_sleep_may_be_the_last_part,
    an_act_is_tried_as_often_as_it_says_and_no_longer_than_it_may,
    a_saga_undoes_what_was_done_in_reverse_order,
    what_a_saga_did_is_not_undone_when_a_later_part_fails,
    a_crash_at_every_commit_leads_to_the_same_end,
];

const APPROVAL: Signal<Approval> = Signal::named("approval");
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Approval {
    by: String,
    expired: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Order {
    total: u64,
    #[serde(default)]
    approved_by: Vec<String>,
    #[serde(default)]
    done: Vec<String>,
}

/// What acts and conditions did, in order, in the world outside.
type Log = Arc<Mutex<Vec<String>>>;

fn yes(by: &str) -> Approval {
    Approval { by: by.to_owned(), expired: false }
}

fn approve(mut order: Order, approval: Approval) -> ActResult<Order> {
    if approval.expired {
        return Err("the approval has expired".into());
    }
    order.approved_by.push(approval.by);
    Ok(order)
}

fn note(mut order: Order, cx: &Cx<Log>, what: &str) -> ActResult<Order> {
    cx.deps.lock().expect("no panic").push(what.to_owned());
    order.done.push(what.to_owned());
    Ok(order)
}

async fn reserve(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    note(order, &cx, "reserve")
}

async fn release(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    note(order, &cx, "release")
}

async fn charge(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    note(order, &cx, "charge")
}

async fn refund(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    note(order, &cx, "refund")
}

async fn ship(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    match order.total {
        13 => Err("nobody ships that".into()),
        _ => note(order, &cx, "ship"),
    }
}

async fn escalate(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    note(order, &cx, "escalate")
}

/// A flow at work.
struct Shop {
    engine: Engine,
    new: NewInstance,
    log: Log,
}

impl Shop {
    async fn open(kit: &Kit, flow: Flow<Order, Log>) -> Self {
        Self::open_with(kit, flow, []).await
    }

    async fn open_with(
        kit: &Kit,
        flow: Flow<Order, Log>,
        others: impl IntoIterator<Item = Arc<dyn DynMachine>>,
    ) -> Self {
        let log = Log::default();
        let machine = flow.build(log.clone()).expect("it is well formed");
        let new = machine.instance(&Order::default()).expect("a state");
        let builder = kit.engine().dyn_machine(Arc::new(machine));
        let builder = others.into_iter().fold(builder, EngineBuilder::dyn_machine);
        Self { engine: builder.start().await.expect("the engine starts"), new, log }
    }

    fn client(&self) -> Client {
        self.engine.client()
    }

    async fn start(&self, total: u64) -> InstanceId {
        start(&self.client(), self.new.clone(), total).await
    }

    async fn approve(&self, id: InstanceId, by: &str) -> Delivered {
        self.client().signal(id, APPROVAL, yes(by)).await.expect("a live target")
    }

    async fn ended(&self, id: InstanceId) -> Instance {
        self.client().wait_end(id, SOON).await.expect("it ends")
    }

    async fn outcome(&self, id: InstanceId) -> Order {
        order(&self.ended(id).await)
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().expect("no panic").clone()
    }
}

async fn start(client: &Client, mut new: NewInstance, total: u64) -> InstanceId {
    new.at.state = dormouse::Json::encode("state", &Order { total, ..Order::default() }).expect("a state");
    client.start_many([new]).await.expect("a start")[0].id()
}

fn order(ended: &Instance) -> Order {
    assert_eq!(ended.status, Status::Done, "{ended:?}");
    ended.output.as_ref().expect("an output").decode("output").expect("an order")
}

fn failure(ended: &Instance) -> &str {
    assert_eq!(ended.status, Status::Failed, "{ended:?}");
    ended.last_error.as_deref().expect("a reason")
}

fn approval() -> Flow<Order, Log> {
    let wait = signal(APPROVAL, approve).when(|order: &Order| order.total > 1000).timeout(48 * HOUR);
    Flow::new("approval").then(wait.on_timeout(escalate)).then(act(ship))
}

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

struct Double;

impl Job for Double {
    const NAME: &'static str = "double";
    type Input = u64;
    type Output = u64;

    async fn run(&self, input: u64, _: &Context) -> Result<u64, BoxError> {
        if input == 13 { Err("nobody doubles that".into()) } else { Ok(input * 2) }
    }

    fn retry(&self) -> Retry {
        Retry::never()
    }
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
    let engine = kit.engine().dyn_machine(Arc::new(machine)).job(Double).start().await.expect("it starts");
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
    let flow = || {
        let votes = repeat(
            "votes",
            |order: &Order| order.approved_by.len() < 2,
            signal(APPROVAL, approve).sent_by("voters"),
        );
        let way = branch("way").case("large", |order: &Order| order.total > 1000, act(charge).undo(refund));
        let items = each("items", |_: &Order| (1..3).map(NewInstance::job::<Double>).collect());
        let parts = (act(reserve).undo(release), votes.at_most(3), way.otherwise_nothing(), items, act(ship));
        Flow::<Order, Log>::new("all").then(saga("booking", parts)).then(act(escalate))
    };
    let run = async |total: u64, commits_max: usize| -> (bool, Instance) {
        let commits = Arc::new(AtomicUsize::new(0));
        let counted = commits.clone();
        let refuse = move |batch: &[dormouse::store::Commit]| {
            let before = counted.fetch_add(batch.len(), Ordering::SeqCst);
            (before + batch.len() > commits_max).then(|| Error::Busy("the crash is near".to_owned()))
        };
        let engine = |store| async {
            let machine = flow().build(Log::default()).expect("it is well formed");
            let new = machine.instance(&Order::default()).expect("a state");
            let builder = Engine::on(store)
                .worker_name("w")
                .lease(Duration::from_secs(u32::MAX.into()))
                .poll(Duration::from_millis(20));
            (builder.dyn_machine(Arc::new(machine)).job(Double).start().await.expect("it starts"), new)
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
    for (total, end) in
        [(5000, Ok(["reserve", "charge", "ship", "escalate"])), (13, Err("booking/ship: nobody ships that"))]
    {
        let mut crashes = 0;
        for commits_max in 0.. {
            let (crashed, ended) = run(total, commits_max).await;
            match end {
                Ok(done) => {
                    let order = order(&ended);
                    assert_eq!((order.done, order.approved_by.len()), (done.map(str::to_owned).to_vec(), 2));
                }
                Err(why) => assert_eq!(failure(&ended), why, "after {commits_max} commits"),
            }
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
