//! Answers that are nested deeper than a database can parse: each is refused for good, and the others are admitted.

use dormouse::Limits;

use super::*;

/// Asks the bank, and takes whatever it says.
struct Loose;

#[derive(Serialize, Deserialize)]
enum Asked {
    Ask,
    Told,
}

impl Machine for Loose {
    const NAME: &'static str = "loose";
    type State = Asked;
    type Output = u64;

    async fn step(&self, state: Asked, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Asked::Ask => Outcome::dispatch(Unit::one("how much?").transport("bank"), Asked::Told),
            Asked::Told => Outcome::done(cx.unit::<u64>().await?.one()?),
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_too_deep_is_refused_for_good_on_sqlite() {
    is_refused_for_good(sqlite().await, Limits::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_too_deep_is_refused_for_good_on_postgres() {
    let (_database, store) = postgres().await;
    is_refused_for_good(store, Limits::default()).await;
}

/// The door lets it through here: then the database refuses it, and that is not taken for a fault that will pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_the_database_cannot_parse_is_refused_for_good() {
    let (_database, store) = postgres().await;
    is_refused_for_good(store, Limits { document_depth_max: usize::MAX, ..Limits::default() }).await;
}

async fn is_refused_for_good(store: Arc<dyn Store>, limits: Limits) {
    let broker = Broker::start().await;
    let provider = Provider::start(&broker, |_| Vec::new()).await;
    let builder = Engine::on(store).machine(Loose).limits(limits).poll(Duration::from_millis(100));
    let engine = builder.transport("bank", broker.transport().await).start().await.expect("it starts");
    let client = engine.client();
    let first = client.start::<Loose>(Asked::Ask).await.expect("a start");
    let second = client.start::<Loose>(Asked::Ask).await.expect("a start");
    let asked = provider.until_got(2).await;
    let nested = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    for request in &asked {
        broker.answer(format!(r#"{{"interaction":{},"output":{nested}}}"#, request.interaction)).await;
    }
    broker.answer(asked[0].output(json!(7))).await;
    broker.answer(asked[1].output(json!(8))).await;
    let first = client.wait::<Loose>(first, SOON).await.expect("an output");
    let second = client.wait::<Loose>(second, SOON).await.expect("an output");
    assert_eq!((first.min(second), first.max(second)), (7, 8));
    let settled = broker.until_settled().await;
    assert_eq!(settled.num_redelivered, 0, "what is refused does not come again");
    assert_eq!(settled.delivered.consumer_sequence, 4, "each was delivered once");
    engine.shutdown().await;
}

async fn postgres() -> (database::Database, Arc<dyn Store>) {
    let database = database::Database::new("2030-01-01T00:00:00Z".parse().expect("a moment")).await;
    database.let_time_pass().await;
    let store = PostgresStore::connect(&database.url).await.expect("it opens");
    (database, Arc::new(store))
}
