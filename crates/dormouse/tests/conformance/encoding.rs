//! What cannot be written as JSON, or be read again: told, and nobody is harmed.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse::flow::{Flow, signal as wait};
use dormouse::prelude::*;
use dormouse::{NewSignal, Status};
use serde_json::json;

use crate::kit::*;

suite![
    an_outcome_that_cannot_be_encoded_goes_to_the_handler,
    a_payload_past_the_door_that_does_not_decode_fails_the_step,
    a_payload_past_the_door_that_does_not_decode_holds_up_no_flow,
];

/// A map that is no JSON object: its names are no texts.
type Unwritable = BTreeMap<(u8, u8), u8>;

#[derive(Serialize, Deserialize)]
enum Outcomes {
    Done,
    Next,
    Sleep,
    Replay,
    Await,
    Spawn,
    SpawnBad,
    Dispatch,
    DispatchTo,
    Bad(Unwritable),
}

fn unwritable() -> Unwritable {
    [((1, 2), 3)].into()
}

struct Writer;

impl Machine for Writer {
    const NAME: &'static str = "writer";
    type State = Outcomes;
    type Output = Unwritable;

    async fn step(&self, state: Outcomes, _: &Context) -> StepResult<Self> {
        let bad = || Outcomes::Bad(unwritable());
        let none = std::time::Duration::ZERO;
        Ok(match state {
            Outcomes::Done => Outcome::done(unwritable()),
            Outcomes::Next => Outcome::next(bad()),
            Outcomes::Sleep => Outcome::sleep(none, bad()),
            Outcomes::Replay => Outcome::replay(bad(), none),
            Outcomes::Await => Outcome::await_signal(["a"], bad()),
            Outcomes::Spawn => Outcome::spawn([NewInstance::of::<Self>(bad())], Outcomes::Done),
            Outcomes::SpawnBad => Outcome::spawn([], bad()),
            Outcomes::Dispatch => Outcome::dispatch(Unit::each([unwritable()]), Outcomes::Done),
            Outcomes::DispatchTo => Outcome::dispatch(Unit::one(1), bad()),
            Outcomes::Bad(_) => Outcome::done(Unwritable::new()),
        })
    }

    async fn handle(&self, error: StepError, _: Outcomes, _: &Context) -> StepResult<Self> {
        Ok(Outcome::stop(format!("handled: {error}")))
    }
}

async fn an_outcome_that_cannot_be_encoded_goes_to_the_handler(kit: Kit) {
    let engine = kit.engine().machine(Writer).start().await.expect("the engine starts");
    let outcomes = [
        (Outcomes::Done, "the output is not valid JSON"),
        (Outcomes::Next, ""),
        (Outcomes::Sleep, ""),
        (Outcomes::Replay, ""),
        (Outcomes::Await, ""),
        (Outcomes::Spawn, ""),
        (Outcomes::SpawnBad, ""),
        (Outcomes::Dispatch, "the request is not valid JSON"),
        (Outcomes::DispatchTo, ""),
    ];
    for (state, told) in outcomes {
        let id = engine.client().start::<Writer>(state).await.expect("a start");
        let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
        let reason = ended.last_error.expect("a reason");
        assert_eq!(ended.status, Status::Failed, "{reason}");
        let is_told = reason.starts_with("handled: the ") && reason.contains("key must be a string");
        assert!(is_told && reason.contains(told), "{reason}");
    }
    engine.shutdown().await;
}

const PAID: Signal<u64> = Signal::named("paid");

/// Waits for a payment, and does not say what it accepts: so nothing is checked at the door.
struct Till;

#[derive(Serialize, Deserialize)]
enum Paying {
    Wait,
    Paid,
}

impl Machine for Till {
    const NAME: &'static str = "till";
    type State = Paying;
    type Output = u64;

    async fn step(&self, state: Paying, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Paying::Wait => Outcome::await_signal(PAID, Paying::Paid),
            Paying::Paid => Outcome::done(cx.received(PAID)?.into_iter().sum()),
        })
    }
}

async fn a_payload_past_the_door_that_does_not_decode_fails_the_step(kit: Kit) {
    let engine = kit.engine().machine(Till).start().await.expect("the engine starts");
    let id = engine.client().start::<Till>(Paying::Wait).await.expect("a start");
    kit.until(id, Status::AwaitingSignal).await;
    kit.deliver(id, NewSignal::new("paid", json!("a lot").into())).await;
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!((ended.status, ended.step.as_str()), (Status::Failed, "Paid"));
    let reason = ended.last_error.expect("a reason");
    assert!(reason.contains("does not decode") && reason.contains("expected u64"), "{reason}");
    // It is still there, for code that reads it: without it, the step would end well.
    engine.client().retry(id).await.expect("it has failed");
    let again = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!((again.status, again.last_error), (Status::Failed, Some(reason)));
    engine.shutdown().await;
}

async fn a_payload_past_the_door_that_does_not_decode_holds_up_no_flow(kit: Kit) {
    #[derive(Serialize, Deserialize)]
    struct Bill {
        cents: u64,
    }
    let take = |_: Bill, cents: u64| Ok(Bill { cents });
    let flow = Flow::new("bill").then(wait(PAID, take).sent_by("the bank")).build(()).expect("a flow");
    let flow = Arc::new(flow);
    let engine = kit.engine().dyn_machine(flow.clone()).start().await.expect("the engine starts");
    let new = flow.instance(&Bill { cents: 0 }).expect("a state");
    let id = engine.client().start_many([new]).await.expect("a start")[0].id();
    kit.until(id, Status::AwaitingSignal).await;
    let refused = engine.client().signal(id, Signal::named("paid"), "a lot").await;
    assert!(refused.is_err(), "a flow says what it accepts, so this one stands at the door");
    kit.deliver(id, NewSignal::new("paid", json!("a lot").into())).await;
    kit.deliver(id, NewSignal::new("paid", json!(5).into())).await;
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!((ended.status, ended.last_error), (Status::Done, None), "it took the one that it can read");
    engine.shutdown().await;
}
