//! A partner whose answer is nested deeper than a database can parse: it fails its own item, and holds up no other.

use std::sync::Arc;

use dormouse::Limits;
use dormouse::store::Store;
use dormouse::store::postgres::PostgresStore;

use super::*;
use crate::database::Database;

/// Deeper than PostgreSQL's parser goes with its stack.
pub(crate) const DEPTH: usize = 20_000;

pub(crate) fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_too_deep_fails_its_item_alone_on_sqlite() {
    let client = Client::open("sqlite::memory:").await.expect("a store");
    fails_its_item_alone(client.store().clone(), Limits::default(), "more than 64 objects").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_too_deep_fails_its_item_alone_on_postgres() {
    let (_database, store) = postgres().await;
    fails_its_item_alone(store, Limits::default(), "more than 64 objects").await;
}

/// The door lets it through here: then the database refuses it, and that is not taken for a fault that will pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_the_database_cannot_parse_fails_its_item_alone() {
    let (_database, store) = postgres().await;
    let limits = Limits { document_depth_max: usize::MAX, ..Limits::default() };
    fails_its_item_alone(store, limits, "the database refuses a value").await;
}

async fn fails_its_item_alone(store: Arc<dyn Store>, limits: Limits, told: &str) {
    let partner = Partner::start().await;
    // A refused answer is asked for again until the sender gives up, which it does at once here.
    let sending = Sending { give_up_after: Duration::ZERO, ..Sending::default() };
    let engine = Engine::on(store).machine(FraudCheck).limits(limits);
    let engine = engine.transport_with("partner", webhook(&partner, Targets::Any), sending);
    let engine = engine.start().await.expect("it starts");
    partner.answers_through(engine.client());
    let orders = ["deep", "at once", "deep", "at once"].map(str::to_owned).to_vec();
    let id = engine.client().start::<FraudCheck>(Check::Ask { orders }).await.expect("a start");
    let verdicts = engine.client().wait::<FraudCheck>(id, SOON).await.expect("an output");
    assert_eq!((verdicts[1].as_str(), verdicts[3].as_str()), ("at once: fine", "at once: fine"));
    for place in [0, 2] {
        assert!(verdicts[place].starts_with("failed: ") && verdicts[place].contains(told), "{verdicts:?}");
    }
    assert_eq!(partner.requests().len(), 4, "each was sent once");
    engine.shutdown().await;
}

async fn postgres() -> (Database, Arc<dyn Store>) {
    let database = Database::new("2030-01-01T00:00:00Z".parse().expect("a moment")).await;
    database.let_time_pass().await;
    let store = PostgresStore::connect(&database.url).await.expect("it opens");
    (database, Arc::new(store))
}
