//! An order over a threshold waits for a manager, for 48 hours; one that nobody answers is refused.

use std::time::Duration;

use dormouse::flow::{ActResult, Cx, Flow, act, branch, signal};
use dormouse::prelude::*;
use dormouse::testing::TestEngine;

#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    total: u64,
    approved: bool,
}

const MANAGER: Signal<bool> = Signal::named("manager");
const TWO_DAYS: Duration = Duration::from_secs(48 * 3600);

pub(crate) fn approval() -> Flow<Order> {
    Flow::new("order_approval")
        .then(signal(MANAGER, decide).when(is_large).timeout(TWO_DAYS).on_timeout(refuse))
        .then(branch("decision").case("refused", is_refused, act(tell_customer)).otherwise(act(ship)))
}

fn is_large(order: &Order) -> bool {
    order.total > 1000
}

fn is_refused(order: &Order) -> bool {
    is_large(order) && !order.approved
}

fn decide(order: Order, approved: bool) -> ActResult<Order> {
    Ok(Order { approved, ..order })
}

async fn refuse(order: Order, _: Cx<()>) -> ActResult<Order> {
    decide(order, false)
}

async fn ship(order: Order, _: Cx<()>) -> ActResult<Order> {
    Ok(order)
}

async fn tell_customer(order: Order, _: Cx<()>) -> ActResult<Order> {
    Ok(order)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let flow = approval().build(())?;
    let machine = flow.clone();
    let test = TestEngine::start(move |engine| engine.flow(&machine)).await?;
    test.client().start_flow(&flow, &Order { total: 5000, approved: false }).key("order:1").await?;
    test.client().signal("order:1", MANAGER, true).await?;
    println!("{:?}", test.client().wait_end("order:1", TWO_DAYS).await?.output);
    Ok(())
}
