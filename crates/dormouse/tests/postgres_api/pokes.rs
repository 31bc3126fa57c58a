//! Pokes as they go over the wire.

use std::time::{Duration, Instant};

use dormouse::store::{Effects, Store};
use dormouse::{At, Client, InstanceId, Json, NewInstance};
use serde_json::Value;
use sqlx::postgres::PgListener;

use crate::{SOON, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_pokes_is_gathered_into_few() {
    let world = World::new().await;
    let mut wire = Wire::listen(&world).await;
    let started = Instant::now();
    for n in 0..500_i64 {
        let queues = [format!("q{}", n % 3)].into();
        world.store.poke(&Effects { queues, ended: vec![InstanceId(n)], ..Effects::default() });
        if n % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let burst = started.elapsed();
    // The last of them: what came before it goes before it, or with it.
    world.store.poke(&Effects { cancel: vec![InstanceId(7)], ..Effects::default() });
    let mut pokes = wire.until(|poke| poke["cancel"] == serde_json::json!([7])).await;
    let last = pokes.pop().expect("the last one");
    // Each waits two milliseconds for what gathers meanwhile.
    let most = 2 + burst.as_millis() as usize / 2;
    assert!(pokes.len() <= most, "{} pokes in {burst:?}: {pokes:?}", pokes.len());
    let mut queues: Vec<_> = pokes.iter().chain([&last]).flat_map(queues_of).collect();
    queues.sort_unstable();
    queues.dedup();
    assert_eq!(queues, ["q0", "q1", "q2"], "none is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_start_pokes_the_clock_and_no_queue() {
    let world = World::new().await;
    let mut wire = Wire::listen(&world).await;
    let client = Client::on(world.store.clone());
    let place = || At { step: "start".into(), state: Json::null() };
    let later = NewInstance::named("m", 1, place())
        .even_if_unknown()
        .queue("later")
        .start_at(Duration::from_secs(60));
    client.start_many([later]).await.expect("a start");
    let delayed = wire.until(|poke| !poke["wake_at"].is_null()).await;
    assert!(delayed.iter().all(|poke| queues_of(poke).is_empty()), "{delayed:?}");
    client
        .start_many([NewInstance::named("m", 1, place()).even_if_unknown().queue("now")])
        .await
        .expect("a start");
    let at_once = wire.until(|poke| !queues_of(poke).is_empty()).await;
    assert_eq!(queues_of(at_once.last().expect("a poke")), ["now"]);
}

/// What goes over the channel of one database.
struct Wire(PgListener);

impl Wire {
    async fn listen(world: &World) -> Self {
        let mut listener = PgListener::connect(&world.database.url).await.expect("a connection");
        listener.listen("dormouse").await.expect("a channel");
        Self(listener)
    }

    /// The pokes up to the first of which this is true.
    async fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut pokes = Vec::new();
        loop {
            let heard = tokio::time::timeout(SOON, self.0.recv()).await.expect("a poke in time");
            let poke: Value = serde_json::from_str(heard.expect("a poke").payload()).expect("it is JSON");
            let found = is_it(&poke);
            pokes.push(poke);
            if found {
                return pokes;
            }
        }
    }
}

fn queues_of(poke: &Value) -> Vec<String> {
    let queues = poke["queues"].as_array().cloned().unwrap_or_default();
    queues.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
