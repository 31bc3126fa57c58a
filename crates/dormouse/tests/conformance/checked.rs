//! What is refused before it is stored, where the machine's code is and where only its declaration is.

use std::sync::Arc;

use dormouse::flow::{Flow, signal};
use dormouse::prelude::*;
use dormouse::store::Filter;
use dormouse::{Accepts, At, Client, Engine, Error, Json, NewSignal, Status};
use serde_json::json;

use crate::kit::*;

suite![
    a_signal_that_its_step_could_not_read_is_refused_wherever_the_code_is,
    a_signal_that_the_machine_does_not_name_is_refused_with_the_nearest_name,
    a_machine_may_take_signals_that_it_does_not_name,
    a_flow_takes_the_signals_of_its_parts_and_no_others,
    a_start_that_the_machine_could_not_read_is_refused_wherever_the_code_is,
    a_retry_from_a_place_that_the_machine_could_not_read_is_refused,
    a_fork_with_a_state_that_the_machine_could_not_read_or_would_ignore_is_refused,
    a_queue_that_nothing_names_is_not_braked_unless_that_is_asked_for,
];

struct Expense;

#[derive(Serialize, Deserialize)]
enum Report {
    Open { number: u64, note: Option<String> },
    Paid { number: u64 },
    Broken,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    cents: u64,
}

const RECEIPT: Signal<Receipt> = Signal::named("receipt");
const SUBMIT: Signal<()> = Signal::named("submit");

impl Machine for Expense {
    const NAME: &'static str = "expense";
    const QUEUE: &'static str = "office";
    type State = Report;
    type Output = u64;

    async fn step(&self, state: Report, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Report::Open { number, .. } => Outcome::await_signal(RECEIPT, Report::Paid { number }),
            Report::Paid { .. } => {
                Outcome::done(cx.received(RECEIPT)?.iter().map(|receipt| receipt.cents).sum())
            }
            Report::Broken => Outcome::stop("it is broken"),
        })
    }

    fn accepts() -> Vec<Accepts> {
        vec![RECEIPT.into(), SUBMIT.into()]
    }
}

/// One client with the code, and one without: what they refuse is the same.
async fn doors(kit: &Kit) -> (Engine, [Client; 2]) {
    let engine = kit.engine().queue("office", 4).machine(Expense).start().await.expect("it starts");
    let clients = [engine.client(), kit.client()];
    (engine, clients)
}

fn open() -> Report {
    Report::Open { number: 1, note: None }
}

async fn a_signal_that_its_step_could_not_read_is_refused_wherever_the_code_is(kit: Kit) {
    let (engine, clients) = doors(&kit).await;
    let id = clients[0].start::<Expense>(open()).await.expect("a start");
    kit.until(id, Status::AwaitingSignal).await;
    for client in &clients {
        for bad in [json!({ "cents": "oops" }), json!({ "cents": -1 }), json!({}), json!(null), json!("5")] {
            let bad = NewSignal::new("receipt", Json::from(bad));
            let fresh = NewInstance::of::<Expense>(open());
            for refused in [
                client.signal_raw(id, bad.clone()).await.map(drop),
                client.signal_many([(id.into(), bad.clone())]).await.map(drop),
                client.start_and_signal(fresh, bad.clone()).await.map(drop),
            ] {
                assert!(matches!(refused, Err(Error::PayloadRefused { .. })), "{refused:?} {bad:?}");
            }
        }
        assert!(client.inbox(id).await.expect("a read").is_empty(), "nothing was stored");
    }
    clients[1]
        .signal_raw(id, NewSignal::new("receipt", Json::from(json!({ "cents": 5 }))))
        .await
        .expect("it fits");
    assert_eq!(clients[0].wait::<Expense>(id, SOON).await.expect("an output"), 5);
    engine.shutdown().await;
}

async fn a_signal_that_the_machine_does_not_name_is_refused_with_the_nearest_name(kit: Kit) {
    let (engine, clients) = doors(&kit).await;
    let id = clients[0].start::<Expense>(open()).await.expect("a start");
    for client in &clients {
        let misspelt = NewSignal::new("recept", Json::from(json!({ "cents": 5 })));
        for refused in [
            client.signal_raw(id, misspelt.clone()).await.map(drop),
            client.signal_many([(id.into(), misspelt.clone())]).await.map(drop),
            client.start_and_signal(NewInstance::of::<Expense>(open()), misspelt.clone()).await.map(drop),
        ] {
            let Err(Error::UndeclaredSignal { nearest, accepts, .. }) = &refused else {
                panic!("{refused:?}")
            };
            assert_eq!(
                (nearest.as_deref(), &accepts[..]),
                (Some("receipt"), &["receipt".to_owned(), "submit".to_owned()][..])
            );
            let told = refused.expect_err("it is refused").to_string();
            assert_eq!(
                told,
                "machine expense takes no signal \"recept\" (did you mean \"receipt\"?): it takes receipt, submit"
            );
        }
        assert!(client.inbox(id).await.expect("a read").is_empty(), "nothing was stored");
    }
    assert_eq!(clients[1].list(Filter::default()).await.expect("a list").instances.len(), 1, "nor started");
    engine.shutdown().await;
}

/// Names one signal, and awaits another.
struct Loose<const OTHERS: bool>;

#[derive(Serialize, Deserialize)]
enum Waiting {
    Wait,
    Came,
}

impl<const OTHERS: bool> Machine for Loose<OTHERS> {
    const NAME: &'static str = if OTHERS { "loose" } else { "tight" };
    type State = Waiting;
    type Output = ();

    async fn step(&self, state: Waiting, _: &Context) -> StepResult<Self> {
        Ok(match state {
            Waiting::Wait => Outcome::await_signal(Signal::<()>::named("unnamed"), Waiting::Came),
            Waiting::Came => Outcome::done(()),
        })
    }

    fn accepts() -> Vec<Accepts> {
        vec![SUBMIT.into()]
    }

    fn accepts_others() -> bool {
        OTHERS
    }
}

async fn a_machine_may_take_signals_that_it_does_not_name(kit: Kit) {
    let engine =
        kit.engine().machine(Loose::<true>).machine(Loose::<false>).start().await.expect("it starts");
    for client in [engine.client(), kit.client()] {
        let any = NewSignal::new("whatever", Json::null());
        let loose = client.start::<Loose<true>>(Waiting::Wait).await.expect("a start");
        client.signal_raw(loose, any.clone()).await.expect("it takes any");
        let tight = client.start::<Loose<false>>(Waiting::Wait).await.expect("a start");
        kit.until(tight, Status::AwaitingSignal).await;
        let refused = client.signal_raw(tight, any).await;
        assert!(matches!(refused, Err(Error::UndeclaredSignal { .. })), "{refused:?}");
        client.signal_raw(tight, NewSignal::new("unnamed", Json::null())).await.expect("it awaits that one");
        kit.until(tight, Status::Done).await;
    }
    engine.shutdown().await;
}

#[derive(Serialize, Deserialize)]
struct Trip {
    cents: u64,
}

async fn a_flow_takes_the_signals_of_its_parts_and_no_others(kit: Kit) {
    let paid = |_: Trip, receipt: Receipt| Ok(Trip { cents: receipt.cents });
    let trip =
        Flow::new("trip").then(signal(RECEIPT, paid).sent_by("the customer")).build(()).expect("a flow");
    let new = || trip.instance(&Trip { cents: 0 }).expect("a state");
    let (one, other) = (new(), new());
    let engine = kit.engine().dyn_machine(Arc::new(trip)).start().await.expect("it starts");
    for (client, new) in [(engine.client(), one), (kit.client(), other)] {
        let id = client.start_many([new]).await.expect("a start")[0].id();
        let refused = client.signal_raw(id, NewSignal::new("reciept", Json::null())).await;
        assert!(matches!(refused, Err(Error::UndeclaredSignal { .. })), "{refused:?}");
        client.signal(id, RECEIPT, Receipt { cents: 3 }).await.expect("a signal");
        kit.until(id, Status::Done).await;
    }
    engine.shutdown().await;
}

fn at(step: &'static str, state: serde_json::Value) -> At {
    At { step: step.into(), state: Json::from(state) }
}

fn unreadable() -> [(At, &'static str); 4] {
    [
        (at("Open", json!(null)), "Open"),
        (at("Open", json!({ "number": "one" })), "number"),
        (at("Open", json!({ "note": "a" })), "number"),
        (at("Opened", json!({ "number": 1 })), "Opened"),
    ]
}

async fn a_start_that_the_machine_could_not_read_is_refused_wherever_the_code_is(kit: Kit) {
    let (engine, clients) = doors(&kit).await;
    for client in &clients {
        for (at, told) in unreadable() {
            let refused = client.start_many([NewInstance::named("expense", 1, at)]).await;
            let Err(Error::InvalidState(reason)) = &refused else { panic!("{refused:?}") };
            assert!(reason.contains(told), "{reason}");
        }
        assert!(client.list(Filter::default()).await.expect("a list").instances.is_empty());
    }
    engine.shutdown().await;
}

async fn a_retry_from_a_place_that_the_machine_could_not_read_is_refused(kit: Kit) {
    let (engine, clients) = doors(&kit).await;
    let id = clients[0].start::<Expense>(Report::Broken).await.expect("a start");
    let failed = kit.until(id, Status::Failed).await;
    for client in &clients {
        for (at, told) in unreadable() {
            let refused = client.retry_raw(id, at).await;
            let Err(Error::InvalidState(reason)) = &refused else { panic!("{refused:?}") };
            assert!(reason.contains(told), "{reason}");
        }
        let ignored = client.retry_raw(id, at("Open", json!({ "number": 1, "nosuch": 1 }))).await;
        let Err(Error::InvalidState(reason)) = &ignored else { panic!("{ignored:?}") };
        assert!(reason.contains("\"nosuch\""), "{reason}");
    }
    assert_eq!(clients[1].get(id).await.expect("a read"), Some(failed), "nothing was changed");
    clients[1].retry_raw(id, at("Open", json!({ "number": 1 }))).await.expect("a place that can be read");
    kit.until(id, Status::AwaitingSignal).await;
    engine.shutdown().await;
}

async fn a_fork_with_a_state_that_the_machine_could_not_read_or_would_ignore_is_refused(kit: Kit) {
    let (engine, clients) = doors(&kit).await;
    let id = clients[0].start::<Expense>(open()).await.expect("a start");
    kit.until(id, Status::AwaitingSignal).await;
    for client in &clients {
        for (state, told) in [
            (json!({ "number": true, "note": null }), "number"),
            (json!({ "number": 1, "note": null, "nosuch": 1 }), "\"nosuch\""),
        ] {
            let forked = client.fork(id, 1, |mut new| {
                new.at.state = Json::from(state);
                new
            });
            let refused = forked.await;
            let Err(Error::InvalidState(reason)) = &refused else { panic!("{refused:?}") };
            assert!(reason.contains(told), "{reason}");
        }
        assert_eq!(client.list(Filter::default()).await.expect("a list").instances.len(), 1);
    }
    clients[1].fork(id, 1, |new| new).await.expect("a state as it was");
    engine.shutdown().await;
}

async fn a_queue_that_nothing_names_is_not_braked_unless_that_is_asked_for(kit: Kit) {
    let (engine, clients) = doors(&kit).await;
    for client in &clients {
        let refused = client.pause_queue("offise").await;
        let Err(Error::UnknownQueue { nearest, .. }) = &refused else { panic!("{refused:?}") };
        assert_eq!(nearest.as_deref(), Some("office"));
        assert!(client.stats().await.expect("stats").paused_queues.is_empty(), "nothing was changed");
        client.pause_queue("office").await.expect("its machine names it");
        client.resume_queue("office").await.expect("so it can be let go");
        client.pause_queue("offise").even_if_unknown().await.expect("it is asked for");
        client.resume_queue("offise").await.expect("now its brake names it");
    }
    engine.shutdown().await;
}
