//! An order shop of flows, which tells what it did.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::flow::{ActResult, Cx, Flow, act, branch, each, repeat, saga, signal};
use dormouse::prelude::*;
use dormouse::{Client, Delivered, DynMachine, Engine, EngineBuilder, Instance, InstanceId, Status};

use crate::kit::{Kit, SOON};

pub const APPROVAL: Signal<Approval> = Signal::named("approval");
pub const HOUR: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    pub by: String,
    pub expired: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Order {
    pub total: u64,
    #[serde(default)]
    pub approved_by: Vec<String>,
    #[serde(default)]
    pub done: Vec<String>,
}

/// What acts and conditions did, in order, in the world outside.
pub type Log = Arc<Mutex<Vec<String>>>;

pub fn yes(by: &str) -> Approval {
    Approval { by: by.to_owned(), expired: false }
}

pub fn approve(mut order: Order, approval: Approval) -> ActResult<Order> {
    if approval.expired {
        return Err("the approval has expired".into());
    }
    order.approved_by.push(approval.by);
    Ok(order)
}

pub fn note(mut order: Order, cx: &Cx<Log>, what: &str) -> ActResult<Order> {
    cx.deps.lock().expect("no panic").push(what.to_owned());
    order.done.push(what.to_owned());
    Ok(order)
}

pub async fn reserve(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    note(order, &cx, "reserve")
}

pub async fn release(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    note(order, &cx, "release")
}

pub async fn charge(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    note(order, &cx, "charge")
}

pub async fn refund(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    note(order, &cx, "refund")
}

pub async fn ship(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    match order.total {
        13 => Err("nobody ships that".into()),
        _ => note(order, &cx, "ship"),
    }
}

pub async fn escalate(order: Order, cx: Cx<Log>) -> ActResult<Order> {
    note(order, &cx, "escalate")
}

/// A flow at work.
pub struct Shop {
    pub engine: Engine,
    pub new: NewInstance,
    pub log: Log,
}

impl Shop {
    pub async fn open(kit: &Kit, flow: Flow<Order, Log>) -> Self {
        Self::open_with(kit, flow, []).await
    }

    pub async fn open_with(
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

    pub fn client(&self) -> Client {
        self.engine.client()
    }

    pub async fn start(&self, total: u64) -> InstanceId {
        start(&self.client(), self.new.clone(), total).await
    }

    pub async fn approve(&self, id: InstanceId, by: &str) -> Delivered {
        self.client().signal(id, APPROVAL, yes(by)).await.expect("a live target")
    }

    pub async fn ended(&self, id: InstanceId) -> Instance {
        self.client().wait_end(id, SOON).await.expect("it ends")
    }

    pub async fn outcome(&self, id: InstanceId) -> Order {
        order(&self.ended(id).await)
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("no panic").clone()
    }
}

pub async fn start(client: &Client, mut new: NewInstance, total: u64) -> InstanceId {
    new.at.state = dormouse::Json::encode("state", &Order { total, ..Order::default() }).expect("a state");
    client.start_many([new]).await.expect("a start")[0].id()
}

pub fn order(ended: &Instance) -> Order {
    assert_eq!(ended.status, Status::Done, "{ended:?}");
    ended.output.as_ref().expect("an output").decode("output").expect("an order")
}

pub fn failure(ended: &Instance) -> &str {
    assert_eq!(ended.status, Status::Failed, "{ended:?}");
    ended.last_error.as_deref().expect("a reason")
}

pub fn approval() -> Flow<Order, Log> {
    let wait = signal(APPROVAL, approve).when(|order: &Order| order.total > 1000).timeout(48 * HOUR);
    Flow::new("approval").then(wait.on_timeout(escalate)).then(act(ship))
}

/// A flow with a part of every kind that matters to a crash: a saga that goes well, or is undone at its last act if the
/// order is of 13.
pub fn booking() -> Flow<Order, Log> {
    let votes = repeat(
        "votes",
        |order: &Order| order.approved_by.len() < 2,
        signal(APPROVAL, approve).sent_by("voters"),
    );
    let way = branch("way").case("large", |order: &Order| order.total > 1000, act(charge).undo(refund));
    let items = each("items", |_: &Order| (1..3).map(NewInstance::job::<Double>).collect());
    let parts = (act(reserve).undo(release), votes.at_most(3), way.otherwise_nothing(), items, act(ship));
    Flow::new("all").then(saga("booking", parts)).then(act(escalate))
}

/// However it was interrupted, it ends like this.
#[track_caller]
pub fn assert_booking(total: u64, ended: &Instance) {
    if total == 13 {
        assert_eq!(failure(ended), "booking/ship: nobody ships that");
        let left: Order = ended.state.decode("state").expect("an order");
        assert_eq!(left.done, ["reserve", "release"], "what was done is undone");
    } else {
        let order = order(ended);
        assert_eq!(order.done, ["reserve", "charge", "ship", "escalate"]);
        assert_eq!(order.approved_by.len(), 2);
    }
}

pub struct Double;

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
