//! The plain command line, which has no machines: what it refuses, and how it repairs an instance.

use std::path::Path;

use dormouse::prelude::*;
use dormouse::store::Delivery;
use dormouse::{Accepts, Client, Engine, InstanceId, Json, NewSignal, Status, Target};
use serde_json::json;

use super::Place;

/// Waits for its payment.
struct Order;

#[derive(Serialize, Deserialize)]
enum Ordering {
    Placed { number: u64 },
    Paid { number: u64 },
}

#[derive(Serialize, Deserialize)]
struct Payment {
    cents: u64,
}

const PAYMENT: Signal<Payment> = Signal::named("payment");

impl Machine for Order {
    const NAME: &'static str = "order";
    type State = Ordering;
    type Output = u64;

    async fn step(&self, state: Ordering, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Ordering::Placed { number } => Outcome::await_signal(PAYMENT, Ordering::Paid { number }),
            Ordering::Paid { .. } => Outcome::done(cx.received(PAYMENT)?[0].cents),
        })
    }

    fn accepts() -> Vec<Accepts> {
        vec![PAYMENT.into()]
    }
}

/// A worker that runs it, in this process.
struct Worker {
    engine: Engine,
    runtime: tokio::runtime::Runtime,
}

impl Worker {
    fn on(db: &Path) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let db = db.to_str().expect("an address").to_owned();
        let address = if db.contains("://") { db } else { format!("sqlite:{db}") };
        let engine = runtime.block_on(async {
            Engine::open(&address).await.expect("it opens").machine(Order).start().await.expect("it starts")
        });
        Self { engine, runtime }
    }

    fn client(&self) -> Client {
        self.engine.client()
    }

    /// Sends a payment that bypasses the checks, as SQL or an older version would, and waits until the step has seen
    /// it.
    fn smuggle(&self, id: i64) {
        let store = self.client().store().clone();
        let signal = NewSignal::new("payment", Json::from(json!({ "cents": "oops" })));
        let target = Target::Id(InstanceId(id));
        self.runtime.block_on(async {
            self.until(id, 2).await;
            let delivery = Delivery {
                namespace: "default".to_owned(),
                target,
                signal,
                inbox_max: dormouse::InboxMax::default(),
                kept_max: dormouse::KeptMax::default(),
            };
            let written = store.deliver(vec![delivery]).await.expect("a delivery");
            store.poke(&written.effects);
            self.until(id, 4).await;
        });
    }

    /// Waits until an instance is parked after this many transitions.
    async fn until(&self, id: i64, seq: u64) {
        let mut changes = self.client().store().hub().changes();
        let parked = async {
            loop {
                changes.borrow_and_update();
                let instance = self.client().get(InstanceId(id)).await.expect("a read").expect("it");
                if instance.seq >= seq && instance.status == Status::AwaitingSignal {
                    break;
                }
                let _ = tokio::time::timeout(std::time::Duration::from_millis(100), changes.changed()).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), parked).await.expect("it parks");
    }
}

#[test]
fn a_bricked_order_is_repaired_on_a_database() {
    an_order_is_repaired(&Place::with_db());
}

#[test]
fn a_bricked_order_is_repaired_over_a_server_on_postgres() {
    an_order_is_repaired(&Place::with_postgres().with_server());
}

fn an_order_is_repaired(place: &Place) {
    place.run(&["migrate"]);
    let worker = Worker::on(&place.db);
    what_cannot_run_is_refused(place);
    let start = ["start", "order", "--step", "Placed", "--state", r#"{"number":1}"#, "--key", "order:1"];
    let id = place.json(&start)["id"].as_i64().expect("an id");
    let told = place.fails(4, &["signal", "payment", r#"{"cents":"oops"}"#, "--to", "order:1"]);
    assert!(told.contains("payment") && told.contains("(at cents)"), "{told}");
    let told = place.fails(4, &["signal", "paiment", r#"{"cents":5}"#, "--to", "order:1"]);
    assert!(told.contains("did you mean \"payment\"?"), "{told}");

    worker.smuggle(id);
    let told = place.text(&["explain", "order:1"]);
    assert!(told.contains("in its inbox cannot be read, drop or edit it"), "{told}");
    let told = place.text(&["inbox", "order:1"]);
    assert!(told.contains("cannot be read: ") && told.contains("(at cents)"), "{told}");
    let signal = place.json(&["inbox", "order:1"])["items"][0]["id"].to_string();
    place.fails(4, &["inbox", "edit", "order:1", &signal, r#"{"cents":true}"#]);
    place.fails(4, &["inbox", "drop", "order:1", &signal, "--if-seq", "1"]);
    let told = place.text(&["inbox", "drop", "order:1", &signal]);
    assert_eq!(told, format!("signal {signal} of order:1 is dropped\n"));
    assert!(place.text(&["inbox", "order:1"]).contains("the inbox is empty"));
    place.fails(3, &["inbox", "drop", "order:1", &signal]);
    assert_eq!(
        place.text(&["signal", "payment", r#"{"cents":5}"#, "--to", "order:1"]),
        "accepted, and woke it\n"
    );
    assert_eq!(place.text(&["result", "order:1", "--wait", "30s"]), "5\n");
    let story = place.text(&["history", "order:1"]);
    assert!(story.contains("signal.dropped"), "{story}");
    let audit = place.text(&["audit", "--limit", "100"]);
    for entry in ["payload-refused payment", "undeclared-signal paiment", "signal.drop"] {
        assert!(audit.contains(entry), "{entry} is not in\n{audit}");
    }
}

fn what_cannot_run_is_refused(place: &Place) {
    let told = place.fails(4, &["start", "order", "--step", "Placed"]);
    assert!(told.contains("the state of step Placed: null, where an object is expected"), "{told}");
    let told = place.fails(4, &["start", "order", "--step", "Placed", "--state", r#"{"number":"one"}"#]);
    assert!(told.contains("(at number)"), "{told}");
    let told = place.fails(4, &["pause", "--queue", "nosuch"]);
    assert!(told.contains("there is no queue \"nosuch\""), "{told}");
    let start = ["start", "order", "--step", "Placed", "--state", r#"{"number":7}"#];
    let id = place.json(&start)["id"].to_string();
    let told = place.fails(4, &["fork", &id, "--from", "1", "--set", "nosuch=1"]);
    assert!(told.contains("has no member \"nosuch\""), "{told}");
    let told = place.fails(4, &["fork", &id, "--from", "1", "--set", "number=seven"]);
    assert!(told.contains("(at number)"), "{told}");
    place.text(&["cancel", &id]);
    let told = place.fails(4, &["retry", &id, "--step", "Paid", "--state", r#"{"number":-1}"#]);
    assert!(told.contains("(at number)"), "{told}");
    assert_eq!(place.json(&["ls", "--all"])["items"].as_array().expect("items").len(), 1);
}
