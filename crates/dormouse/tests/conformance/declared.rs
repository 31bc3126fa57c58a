//! What machines declare, where their code is not.

use std::sync::Arc;

use dormouse::flow::{Flow, dispatch};
use dormouse::prelude::*;
use dormouse::store::{InteractionFilter, NewWorker, Refusal};
use dormouse::{Answers, Client, Declaration, Error, Form, Json, NewSignal, Status, Takes};
use serde_json::json;

use crate::kit::*;

suite![
    what_a_machine_declares_is_known_where_its_code_is_not_and_after_its_worker_has_gone,
    of_those_that_can_run_an_instance_the_one_declared_last_counts,
    a_flow_declares_what_its_parts_are_answered_with,
];

/// Waits for a decision, and asks for a price.
struct Purchase;

#[derive(Serialize, Deserialize)]
enum Buying {
    Decide,
    Asked,
}

#[derive(Serialize, Deserialize)]
struct Decision {
    approved: bool,
}

const DECISION: Signal<Decision> = Signal::named("decision");

impl Machine for Purchase {
    const NAME: &'static str = "purchase";
    const VERSION: u32 = 3;
    const MIGRATES_FROM: u32 = 2;
    const QUEUE: &'static str = "buying";
    type State = Buying;
    type Output = ();

    async fn step(&self, state: Buying, _: &Context) -> StepResult<Self> {
        Ok(match state {
            Buying::Decide => Outcome::await_signal(DECISION, Buying::Asked),
            Buying::Asked => Outcome::done(()),
        })
    }

    fn accepts() -> Vec<dormouse::Accepts> {
        vec![DECISION.into()]
    }

    fn takes() -> Vec<Takes> {
        vec![Takes::at::<u64>("Asked")]
    }

    fn graph() -> Option<dormouse::graph::Graph> {
        let graph = dormouse::graph::Graph::new().step("Decide").awaits("decision", "Asked");
        Some(graph.step("Asked").done())
    }
}

async fn what_a_machine_declares_is_known_where_its_code_is_not_and_after_its_worker_has_gone(kit: Kit) {
    let outside = kit.client();
    assert_eq!(outside.declaration("purchase", 3).await.expect("a read"), None);
    let engine = kit.engine().machine(Purchase).start().await.expect("it starts");
    let inside = engine.client().declaration("purchase", 3).await.expect("a read").expect("it is registered");
    engine.shutdown().await;
    // Another process, which knows nothing yet.
    let outside = kit.client();
    for version in [2, 3] {
        let told = outside.declaration("purchase", version).await.expect("a read").expect("it was declared");
        assert_eq!(told, inside, "for instances of version {version}");
        assert_eq!((&*told.queue, &*told.steps), ("buying", &["Decide".to_owned(), "Asked".to_owned()][..]));
        let Form::Fields(fields) = &told.accepted("decision").expect("it is declared").form else {
            panic!("{told:?}")
        };
        assert_eq!((&*fields[0].name, &fields[0].form), ("approved", &Form::Flag));
        assert_eq!(told.taken("Asked").expect("it is declared").form, Form::Whole);
        assert_eq!(told.graph.as_ref().map(|graph| graph.nodes[0].step.as_str()), Some("Decide"));
    }
    assert_eq!(outside.declaration("purchase", 1).await.expect("a read"), None, "nobody migrates from it");
    let mut declared = outside.declarations().await.expect("a read");
    // Every engine registers the machine of schedules, too.
    declared.retain(|one| one.name != "dormouse.schedule");
    assert_eq!(declared, [inside]);
}

fn declared(version: u32, migrates_from: u32) -> Declaration {
    Declaration {
        name: "m".to_owned(),
        version,
        migrates_from,
        steps: vec![],
        queue: "default".to_owned(),
        keeps_history: true,
        states: vec![],
        accepts_others: true,
        accepts: vec![],
        takes: vec![],
        undo_on_cancel: vec![],
        indexes: Vec::new(),
        graph: None,
    }
}

async fn of_those_that_can_run_an_instance_the_one_declared_last_counts(kit: Kit) {
    let register = async |declares: Vec<Declaration>| {
        kit.advance(std::time::Duration::from_secs(1));
        kit.store.register(NewWorker { declares, ..kit.new_worker("w") }).await.expect("a registration");
        // A client of its own, as another process has.
        kit.client()
    };
    let who = async |client: &Client, version| {
        client.declaration("m", version).await.expect("a read").map(|declaration| declaration.version)
    };
    let client = register(vec![declared(1, 1)]).await;
    assert_eq!((who(&client, 1).await, who(&client, 2).await), (Some(1), None));
    let client = register(vec![declared(2, 1)]).await;
    assert_eq!((who(&client, 1).await, who(&client, 2).await), (Some(2), Some(2)), "it takes over");
    let client = register(vec![declared(1, 1)]).await;
    assert_eq!((who(&client, 1).await, who(&client, 2).await), (Some(1), Some(2)), "a deploy is taken back");
    let client = register(vec![declared(1, 1), declared(2, 1)]).await;
    assert_eq!((who(&client, 1).await, who(&client, 2).await), (Some(1), Some(2)), "both run side by side");
}

#[derive(Serialize, Deserialize)]
struct Trip {
    cents: u64,
}

async fn a_flow_declares_what_its_parts_are_answered_with(kit: Kit) {
    let told = |_: Trip, cents: Answers<u64>| Ok(Trip { cents: cents.one()? });
    let trip = Flow::new("trip").then(dispatch("price", |_: &Trip| Unit::one("how much?"), told));
    let trip = trip.build(()).expect("a flow");
    let new = trip.instance(&Trip { cents: 0 }).expect("a state");
    let engine = kit.engine().dyn_machine(Arc::new(trip)).start().await.expect("it starts");
    let client = engine.client();
    let declared = kit.client().declaration("trip", 1).await.expect("a read").expect("it was declared");
    assert_eq!(declared.taken("price").expect("it is declared").form, Form::Whole);
    let id = client.start_many([new]).await.expect("a start")[0].id();
    kit.until(id, Status::AwaitingCompletion).await;
    let asked = client.interactions(InteractionFilter::default()).await.expect("a list").items.remove(0).id;
    let refused = client.complete(asked, &"a lot").await;
    assert!(
        matches!(refused, Err(Error::CompletionRefused { refusal: Refusal::Malformed, .. })),
        "{refused:?}"
    );
    client.complete(asked, &7).await.expect("an answer that fits");
    assert_eq!(kit.until(id, Status::Done).await.output, Some(Json::from(json!({ "cents": 7 }))));
    engine.shutdown().await;
}

/// Takes payments that a schema describes more closely than their type.
#[cfg(feature = "schema")]
struct Paid;

#[cfg(feature = "schema")]
const PAYMENT: Signal<u64> = Signal::named("payment");

#[cfg(feature = "schema")]
impl Machine for Paid {
    const NAME: &'static str = "paid";
    type State = Buying;
    type Output = u64;

    async fn step(&self, state: Buying, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Buying::Decide => Outcome::await_signal(PAYMENT, Buying::Asked),
            Buying::Asked => Outcome::done(cx.received(PAYMENT)?[0]),
        })
    }

    fn accepts() -> Vec<dormouse::Accepts> {
        vec![dormouse::Accepts::from(PAYMENT).schema(json!({ "type": "integer", "minimum": 1 }))]
    }
}

#[cfg(feature = "schema")]
async fn a_payload_is_held_against_its_schema_wherever_the_code_is(kit: Kit) {
    let engine = kit.engine().machine(Paid).start().await.expect("it starts");
    for client in [engine.client(), kit.client()] {
        let id = client.start::<Paid>(Buying::Decide).await.expect("a start");
        for bad in [json!(0), json!("1"), json!(null)] {
            let bad = NewSignal::new("payment", Json::from(bad));
            let refused = [
                client.signal_raw(id, bad.clone()).await.map(drop),
                client.signal_many([(id.into(), bad.clone())]).await.map(drop),
                client.start_and_signal(NewInstance::of::<Paid>(Buying::Decide), bad).await.map(drop),
            ];
            for refused in refused {
                let Err(Error::PayloadRefused { reason, .. }) = refused else { panic!("{refused:?}") };
                assert!(reason.starts_with("at the top: "), "{reason}");
            }
        }
        client.signal(id, PAYMENT, 5).await.expect("a payload that fits");
        assert_eq!(client.wait::<Paid>(id, SOON).await.expect("an output"), 5);
    }
    engine.shutdown().await;
}

#[cfg(feature = "schema")]
mod with_schema {
    use super::a_payload_is_held_against_its_schema_wherever_the_code_is;

    suite![a_payload_is_held_against_its_schema_wherever_the_code_is];
}
