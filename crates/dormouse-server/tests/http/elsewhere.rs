//! A server without the machines' code still enforces what their workers declared.

use dormouse::prelude::*;
use dormouse::store::Namespaces;
use dormouse::{Accepts, Engine, Takes};
use serde_json::{Value, json};

use crate::kit::*;

suite![
    answers_are_held_against_the_declared_schema,
    what_only_code_can_build_is_refused_and_told_where_to_go,
    payloads_are_held_against_the_declared_schema,
    what_is_started_there_is_checked_and_goes_to_the_machines_own_queue,
    steps_graphs_and_forms_are_known_there,
];

/// Asks for a rating, and then for the price of a stamp; its code is in none of the servers.
struct Rating;

#[derive(Serialize, Deserialize)]
enum Rated {
    Ask {},
    Told {},
    Done {},
}

const STAMP: Signal<u64> = Signal::named("stamp");
const COIN: Signal<u64> = Signal::named("coin");

impl Machine for Rating {
    const NAME: &'static str = "rating";
    const QUEUE: &'static str = "ratings";
    type State = Rated;
    type Output = u64;

    async fn step(&self, state: Rated, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Rated::Ask {} => Outcome::dispatch(Unit::one("how many stars?"), Rated::Told {}),
            Rated::Told {} => Outcome::await_signal([STAMP, COIN], Rated::Done {}),
            Rated::Done {} => Outcome::done(cx.received(STAMP)?[0]),
        })
    }

    fn takes() -> Vec<Takes> {
        let schema = json!({ "type": "object", "required": ["stars"],
            "properties": { "stars": { "type": "integer", "minimum": 1, "maximum": 5 } } });
        vec![Takes::at::<Stars>("Told").schema(schema)]
    }

    fn accepts() -> Vec<Accepts> {
        vec![Accepts::from(STAMP).schema(json!({ "type": "integer", "minimum": 1 })), COIN.into()]
    }
}

/// A worker that runs it, and a server that knows only what is in the database.
async fn apart(site: &Site) -> (Engine, Site) {
    let store = site.client.store().clone();
    let engine = Engine::on(store).namespaces(Namespaces::All).machine(Rating).queue("ratings", 2);
    let engine = engine.start().await.expect("it starts");
    (engine, site.without_code().await)
}

async fn rating(plain: &Site) -> (i64, String) {
    let body = json!({ "machine": "rating", "step": "Ask", "state": {} });
    let id = plain.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    plain.until(id, "awaiting_completion").await;
    let page = plain.get(&format!("/v1/interactions?instance={id}")).await.expect(200);
    (id, format!("/v1/interactions/{}", page["items"][0]["id"]))
}

async fn answers_are_held_against_the_declared_schema(database: Database) {
    let site = database.open().await;
    let (engine, plain) = apart(&site).await;
    let (id, asked) = rating(&plain).await;
    let interaction = asked.rsplit('/').next().and_then(|id| id.parse().ok()).expect("an id");
    let resume = format!("/v1/resume/{}", site.token_of(interaction).await);
    for bad in [json!({ "stars": 6 }), json!({ "stars": "5" }), json!({}), json!(null)] {
        let body = json!({ "output": bad });
        for path in [format!("{asked}/complete"), resume.clone()] {
            let refused = plain.post(&path, body.clone()).await.expect_problem(422, "output-refused");
            assert_eq!(refused["reason"], "schema", "{refused}");
        }
        let batch = json!({ "answers": [{ "interaction": interaction, "output": bad }] });
        let told = plain.post("/v1/interactions/batch", batch).await.expect(200);
        assert_eq!(told["results"][0]["reason"], "schema", "{told}");
    }
    assert_eq!(plain.get(&asked).await.expect(200)["status"], "pending", "it waits on");
    plain.post(&format!("{asked}/complete"), json!({ "output": { "stars": 5 } })).await.expect(200);
    plain.until(id, "awaiting_signal").await;
    engine.shutdown().await;
}

async fn what_only_code_can_build_is_refused_and_told_where_to_go(database: Database) {
    let site = database.open().await;
    let plain = site.without_code().await;
    let (id, open) = site.survey().await;
    let path = format!("/v1/interactions/{open}/complete");
    let refused = plain.post(&path, json!({ "output": { "stars": 4 } })).await;
    let refused = refused.expect_problem(409, "completion-refused");
    assert_eq!(refused["reason"], "unchecked");
    assert!(
        refused["detail"]
            .as_str()
            .expect("text")
            .contains("answer through a program that registers the machine"),
        "{refused}"
    );
    let refused = plain.post(&path, json!({ "output": { "stars": 6 } })).await;
    assert_eq!(refused.expect_problem(422, "output-refused")["reason"], "schema", "what can be checked is");
    site.post(&path, json!({ "output": { "stars": 4 } })).await.expect(200);
    assert_eq!(plain.outcome(id).await["output"], json!("ann gives 4"));
}

async fn payloads_are_held_against_the_declared_schema(database: Database) {
    let site = database.open().await;
    let (engine, plain) = apart(&site).await;
    let (id, asked) = rating(&plain).await;
    plain.post(&format!("{asked}/complete"), json!({ "output": { "stars": 1 } })).await.expect(200);
    let path = format!("/v1/instances/{id}/signals");
    let signal = |payload: Value| json!({ "name": "stamp", "payload": payload });
    for bad in [json!(0), json!("1"), json!(null)] {
        let refused = plain.post(&path, signal(bad)).await.expect_problem(422, "payload-refused");
        assert!(refused["detail"].as_str().expect("text").contains("at the top: "), "{refused}");
    }
    plain.until(id, "awaiting_signal").await;
    let page = plain.browser().page(&format!("/instances/{id}")).await;
    assert!(page.contains("signal-for-stamp") && page.contains("signal-for-coin"), "a form for each");
    plain.post(&path, signal(json!(7))).await.expect(200);
    assert_eq!(plain.outcome(id).await["output"], 7);
    engine.shutdown().await;
}

async fn what_is_started_there_is_checked_and_goes_to_the_machines_own_queue(database: Database) {
    let site = database.open().await;
    let (engine, plain) = apart(&site).await;
    let (id, _) = rating(&plain).await;
    assert_eq!(plain.get(&format!("/v1/instances/{id}")).await.expect(200)["queue"], "ratings");
    let unknown = json!({ "machine": "rating", "step": "Aks", "state": {} });
    let refused = plain.post("/v1/instances", unknown).await.expect_problem(422, "invalid-state");
    assert!(refused["detail"].as_str().expect("text").contains("it has Ask, Told, Done"), "{refused}");
    engine.shutdown().await;
}

async fn steps_graphs_and_forms_are_known_there(database: Database) {
    let site = database.open().await;
    let plain = site.without_code().await;
    let order = site.order(1).await;
    let machines = plain.get("/v1/machines").await.expect(200);
    let machines = machines["machines"].as_array().expect("machines");
    let shop = machines.iter().find(|machine| machine["name"] == "shop").expect("it is known");
    assert_eq!(shop["steps"], json!(["Start", "Ship", "Split", "Join"]));
    assert_eq!(shop["accepts"], json!(["paid"]));
    let graph = plain.get("/v1/machines/shop/graph").await.expect(200);
    assert_eq!((&graph["version"], &graph["nodes"][0]["step"]), (&json!(1), &json!("Start")));
    plain.get("/v1/machines/shop/graph?version=2").await.expect_problem(404, "not-found");
    let page = plain.browser().page(&format!("/instances/{order}")).await;
    assert!(page.contains("signal-for-paid") && page.contains("type=\"number\""), "a form by its type");
    assert!(page.contains("<svg"), "a graph, with the path it took");
    assert!(plain.browser().page("/machines/shop").await.contains("<svg"), "a graph, with counts");
}
