//! A journey is booked part by part, or not at all: when the car cannot be had, the hotel and the flight are given back, the
//! last one first, even if the process dies in the middle of that.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::Status;
use dormouse::flow::{ActResult, Cx, Flow, act, saga, signal};
use dormouse::prelude::*;
use dormouse::testing::TestEngine;

#[derive(Serialize, Deserialize)]
pub(crate) struct Journey {
    to: String,
    booked: Vec<String>,
}

/// The agencies, and all that was asked of them.
#[derive(Clone, Default)]
pub(crate) struct Agencies {
    asked: Arc<Mutex<Vec<String>>>,
}

impl Agencies {
    fn ask(&self, what: &str) {
        self.asked.lock().expect("no one panics").push(what.to_owned());
    }
}

const PAID: Signal<u64> = Signal::named("paid");
const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn travel() -> Flow<Journey, Agencies> {
    let book = saga("book", act(flight).undo(cancel_flight))
        .then(act(hotel).undo(cancel_hotel).retry(Retry::times(3)))
        .then(act(car).undo(cancel_car))
        // Unpaid after a day, all of it is given back.
        .then(signal(PAID, |journey, _cents| Ok(journey)).timeout(DAY));
    Flow::new("travel").then(book).then(act(send_tickets))
}

async fn flight(journey: Journey, cx: Cx<Agencies>) -> ActResult<Journey> {
    Ok(book(journey, &cx, "flight"))
}

async fn hotel(journey: Journey, cx: Cx<Agencies>) -> ActResult<Journey> {
    Ok(book(journey, &cx, "hotel"))
}

async fn car(journey: Journey, cx: Cx<Agencies>) -> ActResult<Journey> {
    if journey.to == "Venice" {
        return Err("there are no cars in Venice".into());
    }
    Ok(book(journey, &cx, "car"))
}

async fn cancel_flight(journey: Journey, cx: Cx<Agencies>) -> ActResult<Journey> {
    Ok(cancel(journey, &cx, "flight"))
}

async fn cancel_hotel(journey: Journey, cx: Cx<Agencies>) -> ActResult<Journey> {
    Ok(cancel(journey, &cx, "hotel"))
}

async fn cancel_car(journey: Journey, cx: Cx<Agencies>) -> ActResult<Journey> {
    Ok(cancel(journey, &cx, "car"))
}

async fn send_tickets(journey: Journey, cx: Cx<Agencies>) -> ActResult<Journey> {
    cx.deps.ask("send tickets");
    Ok(journey)
}

fn book(mut journey: Journey, cx: &Cx<Agencies>, what: &str) -> Journey {
    cx.deps.ask(&format!("book {what}"));
    journey.booked.push(what.to_owned());
    journey
}

fn cancel(mut journey: Journey, cx: &Cx<Agencies>, what: &str) -> Journey {
    cx.deps.ask(&format!("cancel {what}"));
    journey.booked.retain(|booked| booked != what);
    journey
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let agencies = Agencies::default();
    let flow = travel().build(agencies.clone())?;
    let machine = flow.clone();
    let test = TestEngine::start(move |engine| engine.flow(&machine)).await?;
    let client = test.client();
    for to in ["Rome", "Venice"] {
        let journey = Journey { to: to.to_owned(), booked: Vec::new() };
        client.start_flow(&flow, &journey).key(to).await?;
        test.drain().await?;
    }
    client.signal("Rome", PAID, 90_000).await?;
    test.drain().await?;
    test.assert_status("Rome", Status::Done).await;
    test.assert_status("Venice", Status::Failed).await;
    println!("{}", client.explain("Venice").await?);

    let asked = agencies.asked.lock().expect("no one panics").clone();
    println!("{}", asked.join(", "));
    assert_eq!(asked[3..7], ["book flight", "book hotel", "cancel hotel", "cancel flight"]);
    Ok(())
}
