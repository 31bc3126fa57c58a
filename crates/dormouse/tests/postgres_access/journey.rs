//! An engine that does a bit of everything.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::sync::Arc;
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::postgres::PostgresStore;
use dormouse::store::{
    Admission, AuditFilter, Cancel, Collect, Filter, NewApiKey, NewAudit, Repeatable, Scope,
};
use dormouse::{Client, Engine, Status};

const SOON: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const GO: Signal<u64> = Signal::named("go");

struct Journey;

#[derive(Serialize, Deserialize)]
enum Stage {
    Pack,
    Rest,
    Ask { parts: u64 },
    Leave { parts: u64 },
}

impl Machine for Journey {
    const NAME: &'static str = "journey";
    type State = Stage;
    type Output = u64;

    async fn step(&self, stage: Stage, cx: &Context) -> StepResult<Self> {
        Ok(match stage {
            Stage::Pack => Outcome::sleep(Duration::from_millis(20), Stage::Rest),
            Stage::Rest => {
                let legs = (1..=3).map(|n| NewInstance::job::<Leg>(n).lane("road"));
                Outcome::spawn(legs, Stage::Ask { parts: 3 })
            }
            Stage::Ask { parts } => {
                assert_eq!(cx.children().len() as u64, parts);
                Outcome::await_signal(GO.timeout(HOUR), Stage::Leave { parts })
            }
            Stage::Leave { parts } => Outcome::done(parts + cx.received(GO)?[0]),
        })
    }
}

struct Leg;

impl Job for Leg {
    const NAME: &'static str = "leg";
    type Input = u64;
    type Output = u64;

    async fn run(&self, n: u64, _cx: &Context) -> Result<u64, BoxError> {
        Ok(n)
    }
}

pub async fn engine(url: &str) -> Engine {
    let builder = Engine::open(url).await.expect("the store opens");
    let builder = builder.machine(Journey).job(Leg).poll(Duration::from_millis(50));
    builder.start().await.expect("the engine starts")
}

/// Starts, signals, sleeps, spawns, cancels, retries, waits and looks.
pub async fn everything(client: &Client) {
    let id = client.start::<Journey>(Stage::Pack).key("one").await.expect("a start");
    let taken = client.start::<Journey>(Stage::Pack).key("one").await;
    assert!(matches!(taken, Err(dormouse::Error::KeyTaken { .. })), "{taken:?}");
    client.signal("one", GO, 4).dedup("once").await.expect("a signal");
    client.signal("one", GO, 4).dedup("once").await.expect("a repeated signal");
    assert_eq!(client.wait::<Journey>(id, SOON).await.expect("it ends"), 7);

    let idle = client.start::<Journey>(Stage::Ask { parts: 0 }).key("two").await.expect("a start");
    until_waiting(client, idle).await;
    assert!(matches!(client.cancel("two").await.expect("a cancellation"), Cancel::Done { .. }));
    client.retry(idle).await.expect("a retry");
    until_waiting(client, idle).await;
    client.signal(idle, GO, 1).await.expect("a signal");
    assert_eq!(client.wait::<Journey>(idle, SOON).await.expect("it ends"), 1);

    let many = client.start_many((0..50).map(NewInstance::job::<Leg>)).await.expect("a batch");
    for new in many {
        let ended = client.wait_end(new.id(), SOON).await.expect("it ends");
        assert_eq!(ended.status, Status::Done);
    }
    assert!(!client.history(id).await.expect("a history").is_empty());
    assert!(client.explain(id).await.expect("an explanation").contains("done"));
    let ended = client.list(Filter { status: Some(Status::Done), limit: 100, ..Filter::default() }).await;
    assert_eq!(ended.expect("a list").instances.len(), 55);
    assert_eq!(client.stats().await.expect("counts").workers.len(), 1);
    serve(client).await;
}

/// What a server does beside.
async fn serve(client: &Client) {
    let store = client.server_store().expect("a store for servers");
    let new = NewApiKey {
        id: format!("{:016x}", fastrand::u64(..)),
        hash: [7; 32],
        label: "a test".to_owned(),
        namespace: "default".to_owned(),
        scope: Scope::Read,
        expires: None,
    };
    let made = store.add_api_key(new).await.expect("an API key");
    assert_eq!(store.api_key(made.id.clone()).await.expect("a read"), Some(made.clone()));
    store.revoke_api_key(None, made.id).await.expect("a write").expect("a revoked key");
    let entry = NewAudit {
        namespace: "default".to_owned(),
        who: "a test".to_owned(),
        what: "instance.cancel".to_owned(),
        target: None,
        result: "ok".to_owned(),
    };
    store.record_audit(vec![entry]).await.expect("an entry");
    let request = Repeatable {
        namespace: "default".to_owned(),
        key: "again".to_owned(),
        fingerprint: [1; 32],
        kept_for: HOUR,
        given_up_after: HOUR,
    };
    assert_eq!(store.admit(request.clone()).await.expect("a write"), Admission::New);
    assert_eq!(store.admit(request).await.expect("a write"), Admission::UnderWay);
    store.answer("default".to_owned(), "again".to_owned(), None).await.expect("a write");
    store.tidy(HOUR, HOUR, 10).await.expect("a sweep");
    let all = Collect {
        namespace: Some("default".to_owned()),
        ended_for: Some(HOUR),
        events_for: Some(HOUR),
        events_after: 0,
        rows_max: 10,
    };
    store.collect(all).await.expect("a sweep");
    look(client).await;
}

/// What a server looks at.
pub async fn look(client: &Client) {
    let store = client.server_store().expect("a store for servers");
    assert_eq!(store.about().await.expect("a read").store, "postgres");
    store.backlog(None).await.expect("a read");
    assert!(!store.changes(None, Some(0), 10).await.expect("a read").changes.is_empty());
    assert!(!store.api_keys(None).await.expect("a read").is_empty());
    let audit = store.audit(AuditFilter { limit: 10, ..AuditFilter::default() });
    assert!(!audit.await.expect("a read").is_empty());
}

async fn until_waiting(client: &Client, id: dormouse::InstanceId) {
    let started = tokio::time::Instant::now();
    while client.waiting(id).await.expect("a read").is_empty() {
        assert!(started.elapsed() < SOON, "{}", client.explain(id).await.expect("an explanation"));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A client without an engine.
pub async fn client(url: &str) -> Client {
    Client::on(Arc::new(PostgresStore::connect(url).await.expect("the store opens")))
}
