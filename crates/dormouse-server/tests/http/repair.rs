//! Refused signals, and the repair of an inbox that got a bad one all the same.

use dormouse::prelude::*;
use dormouse::store::Delivery;
use dormouse::{Accepts, Engine, InstanceId, Json, NewSignal, Target};
use serde_json::{Value, json};

use crate::browser::leads_to;
use crate::kit::*;

suite![
    a_misspelt_signal_is_refused_with_the_nearest_name_and_the_audit_log_names_it,
    a_bad_signal_is_seen_edited_and_dropped_over_http,
    a_bad_signal_is_repaired_on_the_page_of_its_instance,
    a_state_that_cannot_be_read_is_refused_before_a_retry_or_fork_is_written,
    an_unknown_queue_is_not_braked,
];

/// Names the signals it takes; its code is not in the server.
struct Strict;

#[derive(Serialize, Deserialize)]
enum Waiting {
    Wait {},
    Paid {},
}

const PAYMENT: Signal<u64> = Signal::named("paid");

impl Machine for Strict {
    const NAME: &'static str = "strict";
    type State = Waiting;
    type Output = ();

    async fn step(&self, state: Waiting, _: &Context) -> StepResult<Self> {
        Ok(match state {
            Waiting::Wait {} => Outcome::await_signal(PAYMENT, Waiting::Paid {}),
            Waiting::Paid {} => Outcome::done(()),
        })
    }

    fn accepts() -> Vec<Accepts> {
        vec![PAYMENT.into()]
    }
}

async fn a_misspelt_signal_is_refused_with_the_nearest_name_and_the_audit_log_names_it(database: Database) {
    let site = database.open().await;
    let engine = Engine::on(site.client.store().clone()).machine(Strict).start().await.expect("it starts");
    let body = json!({ "machine": "strict", "step": "Wait", "state": {} });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    for (path, body) in [
        (format!("/v1/instances/{id}/signals"), json!({ "name": "payd", "payload": 7 })),
        (
            "/v1/signals/batch".to_owned(),
            json!({ "signals": [{ "target": id, "name": "payd", "payload": 7 }] }),
        ),
    ] {
        let refused = site.post(&path, body).await.expect(422);
        assert_eq!(refused["type"], "urn:dormouse:problem:undeclared-signal");
        assert_eq!((&refused["nearest"], &refused["signal"]), (&json!("paid"), &json!("payd")));
    }
    let audit = site.get("/v1/audit?what=instance.signal").await.expect(200);
    assert_eq!(audit["items"][0]["result"], "undeclared-signal payd");
    let bad = json!({ "name": "paid", "payload": "lots" });
    site.post(&format!("/v1/instances/{id}/signals"), bad).await.expect(422);
    let audit = site.get("/v1/audit?what=instance.signal").await.expect(200);
    assert_eq!(audit["items"][0]["result"], "payload-refused paid");
    assert_eq!(site.get(&format!("/v1/instances/{id}/inbox")).await.expect(200)["items"], json!([]));
    engine.shutdown().await;
}

/// An order with an unreadable payment that bypassed the checks, as from SQL or an older version.
async fn bricked(site: &Site, number: u64) -> (i64, i64) {
    let id = site.order(number).await;
    let delivery = Delivery {
        namespace: "default".to_owned(),
        target: Target::Id(InstanceId(id)),
        signal: NewSignal::new("paid", Json::from(json!("oops"))),
        inbox_max: dormouse::InboxMax::default(),
        kept_max: dormouse::KeptMax::default(),
    };
    let written = site.client.store().deliver(vec![delivery]).await.expect("a delivery");
    site.client.store().poke(&written.effects);
    // Woken, seen by the step, and parked again.
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let instance = site.get(&format!("/v1/instances/{id}")).await.expect(200);
        let waits = site.client.history(InstanceId(id)).await.expect("a history");
        let waits = waits.iter().filter(|event| event.kind.as_str() == "signal.waiting").count();
        if instance["status"] == "awaiting_signal" && waits == 2 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{instance}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let inbox = site.get(&format!("/v1/instances/{id}/inbox")).await.expect(200);
    let signal = &inbox["items"][0];
    assert!(signal["unreadable"].as_str().expect("why").contains("invalid type"), "{signal}");
    (id, signal["id"].as_i64().expect("an id"))
}

async fn a_bad_signal_is_seen_edited_and_dropped_over_http(database: Database) {
    let site = database.open().await;
    let (id, signal) = bricked(&site, 1).await;
    let here = format!("/v1/instances/{id}/inbox/{signal}");
    let why = site.get(&format!("/v1/instances/{id}/explain")).await.expect(200);
    assert!(why["explanation"].as_str().expect("why").contains("cannot be read, drop or edit it"), "{why}");
    let refused = site.post(&format!("{here}/edit"), json!({ "payload": "more" })).await.expect(422);
    assert_eq!(refused["type"], "urn:dormouse:problem:payload-refused");
    let stale = site.post(&format!("{here}/drop"), json!({ "expected_seq": 1 })).await.expect(409);
    assert_eq!(stale["type"], "urn:dormouse:problem:stale-seq");
    site.post(&format!("/v1/instances/{id}/inbox/nonsense/drop"), json!({})).await.expect(400);
    site.post(&format!("{here}/edit"), json!({ "payload": 7 })).await.expect(200);
    site.until(id, "done").await;
    assert_eq!(
        site.post(&format!("{here}/drop"), json!({})).await.expect(404)["type"],
        "urn:dormouse:problem:no-signal"
    );

    let (id, signal) = bricked(&site, 2).await;
    site.post(&format!("/v1/instances/{id}/inbox/{signal}/drop"), json!({})).await.expect(200);
    assert_eq!(site.get(&format!("/v1/instances/{id}/inbox")).await.expect(200)["items"], json!([]));
    let story = site.get(&format!("/v1/instances/{id}/history")).await.expect(200);
    let last = story["items"].as_array().expect("items").last().expect("an event").clone();
    assert_eq!((&last["kind"], &last["data"]["payload"]), (&json!("signal.dropped"), &json!("oops")));
    let audit = site.get(&format!("/v1/audit?target={id}")).await.expect(200);
    assert_eq!(
        (&audit["items"][0]["what"], &audit["items"][0]["result"]),
        (&json!("signal.drop"), &json!("ok"))
    );
}

async fn a_bad_signal_is_repaired_on_the_page_of_its_instance(database: Database) {
    let site = database.open().await;
    let (id, signal) = bricked(&site, 3).await;
    let here = format!("/instances/{id}");
    let browser = site.browser();
    let page = browser.page(&here).await;
    assert!(page.contains("cannot be read") && page.contains("Drop this signal"), "{page}");
    let seq = site.get(&format!("/v1/instances/{id}")).await.expect(200)["seq"].to_string();
    let form = [("payload", "7"), ("expected_seq", &*seq)];
    let answer = browser.submit(&here, &format!("{here}/inbox/{signal}/edit"), &form).await;
    assert_eq!(leads_to(&answer), format!("{here}?notice=edited"));
    site.until(id, "done").await;
    let (id, signal) = bricked(&site, 4).await;
    let here = format!("/instances/{id}");
    let answer = browser.submit(&here, &format!("{here}/inbox/{signal}/drop"), &[]).await;
    assert_eq!(leads_to(&answer), format!("{here}?notice=dropped"));
    assert!(browser.page(&here).await.contains("No signal waits here."));
}

async fn a_state_that_cannot_be_read_is_refused_before_a_retry_or_fork_is_written(database: Database) {
    let site = database.open().await;
    let id = site.order(1).await;
    site.post(&format!("/v1/instances/{id}/cancel"), json!({})).await.expect(200);
    let before = site.get(&format!("/v1/instances/{id}")).await.expect(200);
    for (verb, body) in [
        ("retry", json!({ "state": "nonsense" })),
        ("retry", json!({ "step": "Nowhere" })),
        ("fork", json!({ "seq": 1, "state": "nonsense" })),
        ("fork", json!({ "seq": 1, "step": "Nowhere" })),
    ] {
        let refused: Value = site.post(&format!("/v1/instances/{id}/{verb}"), body).await.expect(422);
        assert_eq!(refused["type"], "urn:dormouse:problem:invalid-state", "{refused}");
    }
    assert_eq!(site.get(&format!("/v1/instances/{id}")).await.expect(200), before);
    assert_eq!(site.get("/v1/instances").await.expect(200)["items"].as_array().expect("items").len(), 1);
}

async fn an_unknown_queue_is_not_braked(database: Database) {
    let site = database.open().await;
    let refused = site.post("/v1/queues/defalt/pause", json!({})).await.expect(422);
    assert_eq!(
        (&refused["type"], &refused["nearest"]),
        (&json!("urn:dormouse:problem:unknown-queue"), &json!("default"))
    );
    site.post("/v1/queues/defalt/pause", json!({ "even_if_unknown": true })).await.expect(200);
    site.post("/v1/queues/default/pause", json!({})).await.expect(200);
}
