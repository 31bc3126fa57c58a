//! Requests and answers over a real NATS server: killed, restarted, sent rubbish.

#![allow(unreachable_pub, reason = "a test target has no outside")]

#[path = "conformance/counted.rs"]
mod counted;
#[path = "conformance/postgres.rs"]
mod database;
#[path = "nats/deep.rs"]
mod deep;
#[path = "conformance/faulty.rs"]
#[allow(dead_code, reason = "it is shared, and has more than is used here")]
mod faulty;
#[path = "nats/log.rs"]
mod log;
#[path = "../examples/payments_nats.rs"]
#[allow(dead_code, reason = "here it is run by its function, not as a program")]
mod payments_nats;
#[path = "nats/provider.rs"]
mod provider;

use std::sync::Arc;
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::postgres::PostgresStore;
use dormouse::store::{InteractionFilter, Store, Which};
use dormouse::{
    Client, Engine, EventKind, InstanceId, InteractionId, InteractionStatus, Nats, Sending, Sent, Takes,
    Tokens, Transport, Verdict,
};
use serde_json::json;

use self::counted::Counted;
use self::faulty::Faulty;
use self::provider::{Broker, Provider, Request};

const SOON: Duration = Duration::from_secs(60);
const SECRET: &[u8] = b"a secret of more than thirty-two bytes";

/// Asks the bank about each of these numbers, and adds up what it says.
struct Asking;

#[derive(Serialize, Deserialize)]
enum State {
    Ask { items: u64, key: Option<String> },
    Told,
}

impl Machine for Asking {
    const NAME: &'static str = "asking";
    type State = State;
    type Output = Vec<String>;

    async fn step(&self, state: State, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            State::Ask { items, key } => {
                let unit = Unit::each(0..items).transport("bank").in_flight(100);
                let unit = match key {
                    Some(key) => unit.idempotency_key(|_| key.clone()),
                    None => unit,
                };
                Outcome::dispatch(unit.correlation_id(|item| format!("row-{item}")), State::Told)
            }
            State::Told => {
                let told = |verdict: &Verdict<u64>| match verdict {
                    Verdict::Completed(number) => number.to_string(),
                    other => format!("{other:?}"),
                };
                Outcome::done(cx.unit::<u64>().await?.verdicts.iter().map(told).collect())
            }
        })
    }

    fn takes() -> Vec<Takes> {
        vec![Takes::at::<u64>("Told").schema(json!({ "type": "integer", "maximum": 1_000_000 }))]
    }
}

/// Asks a person.
struct Approval;

#[derive(Serialize, Deserialize)]
enum Approving {
    Ask,
    Told,
}

impl Machine for Approval {
    const NAME: &'static str = "approval";
    type State = Approving;
    type Output = bool;

    async fn step(&self, state: Approving, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Approving::Ask => Outcome::dispatch(Unit::one("may we?"), Approving::Told),
            Approving::Told => Outcome::done(cx.unit::<bool>().await?.one()?),
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_out_and_answers_come_back_in_item_order() {
    let broker = Broker::start().await;
    // Twice, and the second time with another number.
    let double = |request: &Request| vec![request.output(times(request, 2)), request.output(json!(0))];
    let provider = Provider::start(&broker, double).await;
    let engine = engine(sqlite().await, broker.transport().await).await;
    let id = ask(&engine.client(), 50).await;
    let told = engine.client().wait::<Asking>(id, SOON).await.expect("an output");
    assert_eq!(told, (0..50).map(|item| (item * 2).to_string()).collect::<Vec<_>>());
    let answered = engine.client().interactions(InteractionFilter::default()).await.expect("a read").items;
    assert!(answered.iter().all(|asked| asked.answered_by.as_deref() == Some("bank")), "{answered:?}");
    let settled = broker.until_settled().await;
    assert_eq!(
        (settled.ack_floor.stream_sequence, settled.num_redelivered),
        (100, 0),
        "each was told of once"
    );
    assert_eq!(provider.got().len(), 50);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_sent_again_is_stored_once_and_two_of_one_key_are_two() {
    let broker = Broker::start().await;
    let provider = Provider::start(&broker, |_| Vec::new()).await;
    let engine = engine(sqlite().await, broker.transport().await).await;
    let state = State::Ask { items: 2, key: Some("one effect".to_owned()) };
    engine.client().start::<Asking>(state).await.expect("a start");
    let got = provider.until_got(2).await;
    assert!(got.iter().all(|request| request.idempotency_key == "one effect"), "{got:?}");
    let asked = engine.client().interactions(InteractionFilter::default()).await.expect("a read").items;
    // As a worker would do that died before it could write down that the first send was accepted.
    let again = broker.transport().await;
    assert_eq!(again.send(&asked[0]).await, Sent::Accepted);
    assert_eq!(broker.requests_stored().await, 2);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_loses_nothing_and_doubles_nothing_on_sqlite() {
    a_broker_that_is_killed_loses_nothing_and_doubles_nothing(sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_loses_nothing_and_doubles_nothing_on_postgres() {
    let database = database::Database::new("2030-01-01T00:00:00Z".parse().expect("a moment")).await;
    database.let_time_pass().await;
    let store = PostgresStore::connect(&database.url).await.expect("it opens");
    a_broker_that_is_killed_loses_nothing_and_doubles_nothing(Arc::new(store)).await;
}

async fn a_broker_that_is_killed_loses_nothing_and_doubles_nothing(store: Arc<dyn Store>) {
    const ITEMS: u64 = 400;
    let mut broker = Broker::start().await;
    let double = |request: &Request| vec![request.output(times(request, 3)); 2];
    let provider = Provider::start(&broker, double).await;
    let engines = [
        engine(store.clone(), broker.transport().await).await,
        engine(store, broker.transport().await).await,
    ];
    let client = engines[0].client();
    let id = ask(&client, ITEMS).await;
    for requests in [30, 120, 250] {
        provider.until_got(requests).await;
        broker.server.kill();
        broker.server.start_again().expect("it starts again");
    }
    let told = client.wait::<Asking>(id, SOON).await.expect("an output");
    assert_eq!(told, (0..ITEMS).map(|item| (item * 3).to_string()).collect::<Vec<_>>());
    broker.until_settled().await;
    for (interaction, mut keys) in provider.keys() {
        keys.dedup();
        assert_eq!(keys.len(), 1, "the interaction {interaction} has one key");
    }
    assert_eq!(provider.keys().len() as u64, ITEMS);
    let story = client.history(id).await.expect("a history");
    let admitted = story.iter().filter(|event| event.kind == EventKind::InteractionCompleted).count();
    assert_eq!(admitted as u64, ITEMS, "each was admitted once");
    for engine in engines {
        engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_none_are_refused_for_good_and_keep_nobody_waiting() {
    let broker = Broker::start().await;
    let provider = Provider::start(&broker, |_| Vec::new()).await;
    let store = sqlite().await;
    let engine = engine(store.clone(), broker.transport().await).await;
    let client = engine.client();
    let id = ask(&client, 1).await;
    let request = provider.until_got(1).await.remove(0);
    // One whose instance was cancelled after it was asked.
    let cancelled = ask(&client, 1).await;
    let too_late = provider.until_got(2).await.remove(1);
    client.cancel(cancelled).await.expect("a cancel");
    // The interaction of a unit that goes another way, such as to a person.
    let person = person(&client).await;
    let large = "x".repeat(600_000);
    for rubbish in [
        "no JSON".to_owned(),
        json!({ "interaction": too_late.interaction, "output": 1 }).to_string(),
        json!({}).to_string(),
        json!({ "interaction": request.interaction }).to_string(),
        json!({ "interaction": request.interaction, "output": 1, "error": "both" }).to_string(),
        json!({ "interaction": 4711, "output": 1 }).to_string(),
        json!({ "correlation_id": "unheard of", "output": 1 }).to_string(),
        json!({ "interaction": person, "output": true }).to_string(),
        json!({ "interaction": request.interaction, "output": "many" }).to_string(),
        json!({ "interaction": request.interaction, "output": 1_000_001 }).to_string(),
        json!({ "interaction": request.interaction, "namespace": "other", "output": 1 }).to_string(),
        json!({ "interaction": request.interaction, "namespace": "", "output": 1 }).to_string(),
        json!({ "interaction": request.interaction, "output": format!("{large}\0") }).to_string(),
    ] {
        broker.answer(rubbish).await;
    }
    broker.answer(json!({ "correlation_id": "row-0", "output": 7 }).to_string()).await;
    assert_eq!(client.wait::<Asking>(id, SOON).await.expect("an output"), ["7"]);
    let settled = broker.until_settled().await;
    assert_eq!(settled.num_redelivered, 0, "what is refused does not come again");
    let untouched = client.interaction(Which::Id(person)).await.expect("a read");
    assert_eq!(untouched.expect("it is there").status, InteractionStatus::Pending);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_tokens_are_asked_for_nothing_else_answers_and_no_log_shows_one() {
    log::listen();
    let broker = Broker::start().await;
    let provider = Provider::start(&broker, |_| Vec::new()).await;
    let tokens = Tokens::new("k1", SECRET).expect("a key");
    let transport = broker.transport().await.tokens(tokens, Duration::from_secs(3600));
    let engine = engine(sqlite().await, transport).await;
    let id = ask(&engine.client(), 1).await;
    let request = provider.until_got(1).await.remove(0);
    let token = request.resume_token.clone().expect("a token goes along");
    let altered = format!("{}{}", &token[..token.len() - 1], if token.ends_with('A') { 'B' } else { 'A' });
    for forged in [
        json!({ "interaction": request.interaction, "output": 1 }),
        json!({ "resume_token": altered, "output": 1 }),
        json!({ "resume_token": "k1.e30.e30", "output": 1 }),
    ] {
        broker.answer(forged.to_string()).await;
    }
    broker.answer(json!({ "resume_token": token, "output": 8 }).to_string()).await;
    assert_eq!(engine.client().wait::<Asking>(id, SOON).await.expect("an output"), ["8"]);
    broker.until_settled().await;
    engine.shutdown().await;
    let logged = log::lines();
    assert_eq!(logged.matches("refusal=\"forged\"").count(), 3, "{logged}");
    let claims = token.split('.').nth(1).expect("its claims");
    assert!(!logged.contains(claims), "{logged}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_database_could_not_take_comes_again() {
    let broker = Broker::start().await;
    let provider = Provider::start(&broker, |_| Vec::new()).await;
    let store = Arc::new(Faulty::on(sqlite().await));
    let engine = engine(store.clone(), broker.transport().await).await;
    let id = ask(&engine.client(), 1).await;
    let request = provider.until_got(1).await.remove(0);
    store.refuse_next("complete", 2);
    broker.answer(request.output(json!(9))).await;
    assert_eq!(engine.client().wait::<Asking>(id, SOON).await.expect("an output"), ["9"]);
    assert_eq!(broker.until_settled().await.delivered.consumer_sequence, 3, "it was delivered three times");
    engine.shutdown().await;
}

/// On one thread, as the recorder is the thread's.
#[tokio::test(flavor = "current_thread")]
async fn answers_are_counted_by_what_became_of_them() {
    let counted = Counted::default();
    let recorder = counted.clone();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let broker = Broker::start().await;
    let provider = Provider::start(&broker, |_| Vec::new()).await;
    let store = Arc::new(Faulty::on(sqlite().await));
    let engine = engine(store.clone(), broker.transport().await).await;
    let id = ask(&engine.client(), 1).await;
    let request = provider.until_got(1).await.remove(0);
    broker.answer("rubbish").await;
    broker.until_settled().await;
    store.refuse_next("complete", 1);
    broker.answer(request.output(json!(9))).await;
    assert_eq!(engine.client().wait::<Asking>(id, SOON).await.expect("an output"), ["9"]);
    broker.until_settled().await;
    engine.shutdown().await;
    for outcome in ["refused", "put_off", "admitted"] {
        let labels: &[&str] = &["transport=bank", &format!("outcome={outcome}")];
        assert_eq!(counted.of("dormouse_answers_total", labels), 1.0, "{outcome}: {:?}", counted.0);
    }
    assert_eq!(counted.of("dormouse_sends_total", &["transport=bank", "outcome=sent"]), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_answers_are_in_hand_than_the_bound() {
    const ANSWERS: usize = 1000;
    let broker = Broker::start().await;
    let provider = Provider::start(&broker, |_| Vec::new()).await;
    let store = Arc::new(Faulty::on(sqlite().await));
    let first = engine(store.clone(), broker.transport().await).await;
    let id = ask(&first.client(), 1).await;
    let request = provider.until_got(1).await.remove(0);
    first.shutdown().await;
    // Nobody takes them yet, so all of them are there at once: one answer, and its repeats.
    let calls = store.calls("complete");
    for _ in 0..ANSWERS {
        broker.answer(request.output(json!(9))).await;
    }
    let second = engine(store.clone(), broker.transport().await).await;
    assert_eq!(second.client().wait::<Asking>(id, SOON).await.expect("an output"), ["9"]);
    let settled = broker.until_settled().await;
    assert_eq!(settled.delivered.consumer_sequence, ANSWERS as u64, "each was delivered once");
    let most = store.calls("answers_most");
    assert!((2..=256).contains(&most), "they are taken together, and no more than the bound: {most}");
    assert!(store.calls("complete") - calls >= ANSWERS.div_ceil(256));
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_stops_leaves_what_it_has_not_committed_to_the_next() {
    let broker = Broker::start().await;
    let provider = Provider::start(&broker, |_| Vec::new()).await;
    let store = sqlite().await;
    let first = engine(store.clone(), broker.transport().await).await;
    let id = ask(&first.client(), 20).await;
    let got = provider.until_got(20).await;
    for request in &got[..10] {
        broker.answer(request.output(json!(1))).await;
    }
    broker.until_settled().await;
    first.shutdown().await;
    for request in &got[10..] {
        broker.answer(request.output(json!(2))).await;
    }
    let unit = Client::on(store.clone()).unit(id).await.expect("a read").expect("it is open");
    assert_eq!(unit.completed, 10, "nobody takes answers now");
    let second = engine(store, broker.transport().await).await;
    let told = second.client().wait::<Asking>(id, SOON).await.expect("an output");
    assert_eq!(told.iter().filter(|told| *told == "2").count(), 10);
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_of_payments_ends_when_all_rows_are_answered_and_again_on_the_same_broker() {
    let broker = Broker::start().await;
    for _ in 0..2 {
        payments_nats::run(&broker.server.url()).await.expect("it ends as it says");
    }
}

fn times(request: &Request, by: u64) -> serde_json::Value {
    json!(request.request.as_u64().expect("a number") * by)
}

async fn sqlite() -> Arc<dyn Store> {
    Client::open("sqlite::memory:").await.expect("a store").store().clone()
}

async fn engine(store: Arc<dyn Store>, nats: Nats) -> Engine {
    let backoff = Duration::from_millis(50);
    let timeout = Duration::from_secs(2);
    let sending = Sending { backoff, backoff_cap: 4 * backoff, timeout, ..Sending::default() };
    let builder = Engine::on(store).machine(Asking).machine(Approval).poll(Duration::from_millis(100));
    builder.transport_with("bank", nats, sending).start().await.expect("it starts")
}

async fn ask(client: &Client, items: u64) -> InstanceId {
    client.start::<Asking>(State::Ask { items, key: None }).await.expect("a start")
}

/// What a person is asked.
async fn person(client: &Client) -> InteractionId {
    let id = client.start::<Approval>(Approving::Ask).await.expect("a start");
    let filter = || InteractionFilter { instance: Some(id), ..InteractionFilter::default() };
    loop {
        if let Some(asked) = client.interactions(filter()).await.expect("a read").items.first() {
            return asked.id;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
