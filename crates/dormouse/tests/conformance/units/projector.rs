//! Outputs that a machine builds from the request and the answer, at the door.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Completed, Completion, Refusal, Which};
use dormouse::{
    Engine, Error, InstanceId, Interaction, InteractionStatus, Json, Sending, Sent, Status, Takes, Tokens,
    Transport,
};
use serde_json::{Value, json};

use super::kit::*;
use crate::kit::*;

suite![
    what_is_built_from_request_and_answer_is_stored_and_read,
    an_answer_that_nothing_can_be_built_from_is_refused_and_the_interaction_waits_on,
    what_only_code_can_build_is_refused_where_the_code_is_not,
    what_is_built_once_stays_though_a_repeat_says_something_else,
    an_answer_that_comes_with_the_acceptance_is_built_too,
    a_bad_answer_with_the_acceptance_is_asked_for_again,
    a_machine_that_takes_something_at_no_step_of_its_own_is_refused,
];

/// Asks what something costs in a foreign currency; the step reads cents.
struct Quote {
    transport: &'static str,
}

#[derive(Serialize, Deserialize)]
enum Quoting {
    Ask { pieces: u64 },
    Told,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Price {
    cents: u64,
}

impl Machine for Quote {
    const NAME: &'static str = "quote";
    type State = Quoting;
    type Output = Price;

    async fn step(&self, state: Quoting, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Quoting::Ask { pieces } => {
                let unit = Unit::one(pieces).correlation_id(|_| "quote".to_owned());
                Outcome::dispatch(unit.transport(self.transport), Quoting::Told)
            }
            Quoting::Told => Outcome::done(cx.unit::<Price>().await?.one()?),
        })
    }

    fn takes() -> Vec<Takes> {
        vec![Takes::at::<Price>("Told").projector(price)]
    }
}

/// The price of that many pieces, from the price of one.
fn price(pieces: u64, piece: f64) -> Result<Value, &'static str> {
    match piece {
        13.0 => panic!("a bug in the projector"),
        14.0 => Ok(json!({ "euros": 14 })),
        15.0 => Ok(json!({ "cents": 1, "padding": "x".repeat(2 * 1024 * 1024) })),
        piece if piece < 0.0 => Err("nobody pays us to take it"),
        piece => Ok(json!({ "cents": (piece * 100.0) as u64 * pieces })),
    }
}

async fn what_is_built_from_request_and_answer_is_stored_and_read(kit: Kit) {
    let (engine, id, item) = asked(&kit).await;
    let done = engine.client().complete(item, &0.25).await.expect("a completion");
    assert_eq!(done, Completed::Admitted { woke: true });
    let stored = engine.client().interaction(item).await.expect("a read").expect("it is there").output;
    assert_eq!(stored, Some(Json::from(json!({ "cents": 75 }))), "three pieces");
    assert_eq!(engine.client().wait::<Quote>(id, SOON).await.expect("an output"), Price { cents: 75 });
    engine.shutdown().await;
}

async fn an_answer_that_nothing_can_be_built_from_is_refused_and_the_interaction_waits_on(kit: Kit) {
    let (engine, id, item) = asked(&kit).await;
    let client = engine.client();
    let tokens = Tokens::new("k1", b"a secret of more than thirty-two bytes").expect("a key");
    let interaction = client.interaction(item).await.expect("a read").expect("it is there");
    let token = tokens.issue(&interaction, kit.now() + Duration::from_secs(60));
    let cases = [
        (json!(-1), Refusal::Projection, "nobody pays us"),
        (json!("free"), Refusal::Projection, "invalid type"),
        (json!(13), Refusal::Projection, "it panicked"),
        (json!(15), Refusal::Projection, "the limit is"),
        (json!(14), Refusal::Malformed, "missing field `cents`"),
    ];
    for (answer, expected, told) in cases {
        let answer = Json::from(answer);
        let by = |to: Which| client.completion(to, Ok(answer.clone()));
        let by_batch = [by(Which::Id(item)), by(Which::Correlation("quote".to_owned()))].to_vec();
        for refused in client.complete_many(by_batch).await.expect("answers") {
            let Completed::Unfit { refusal, reason } = refused else { panic!("{refused:?}") };
            assert!(refusal == expected && reason.contains(told), "{refusal}: {reason}");
        }
        let refused = client.complete_by_token(&tokens, &token, Ok(answer.clone())).await;
        let Err(Error::CompletionRefused { refusal, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(refusal, expected);
    }
    let waits = client.interaction(item).await.expect("a read").expect("it is there");
    assert_eq!((waits.status, waits.answered), (InteractionStatus::Pending, false));
    client.complete(item, &1).await.expect("a completion");
    assert_eq!(client.wait::<Quote>(id, SOON).await.expect("an output"), Price { cents: 300 });
    engine.shutdown().await;
}

async fn what_only_code_can_build_is_refused_where_the_code_is_not(kit: Kit) {
    let (engine, id, item) = asked(&kit).await;
    let refused = kit.client().complete(item, &0.25).await;
    let Err(Error::CompletionRefused { refusal, reason: Some(reason), .. }) = refused else {
        panic!("{refused:?}")
    };
    assert!(refusal == Refusal::Unchecked && reason.contains("builds its output"), "{refusal}: {reason}");
    kit.client().fail(item, "nobody sells it").await.expect("a failure needs no code");
    kit.until(id, Status::Failed).await;
    engine.shutdown().await;
}

async fn what_is_built_once_stays_though_a_repeat_says_something_else(kit: Kit) {
    let (engine, _, item) = asked(&kit).await;
    engine.client().complete(item, &1).await.expect("a completion");
    let first = Completed::Repeat(Ok(Json::from(json!({ "cents": 300 }))));
    for repeat in [json!(2), json!(-1), json!("free")] {
        assert_eq!(engine.client().complete(item, &repeat).await.expect("the first answer"), first);
    }
    // Nobody who fails has anything to build from.
    let failed = Completion { result: Err("no".to_owned()), ..completion(item, ()) };
    assert_eq!(engine.client().complete_many(vec![failed]).await.expect("answers"), [first]);
    engine.shutdown().await;
}

/// Answers with the acceptance: badly so often, then well.
struct AtOnce {
    bad: AtomicUsize,
}

impl Transport for AtOnce {
    fn send<'a>(&'a self, _: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        let left = self.bad.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let answer = if left.is_ok() { json!(-1) } else { json!(2) };
        Box::pin(async move { Sent::Answered(Json::from(answer)) })
    }
}

async fn an_answer_that_comes_with_the_acceptance_is_built_too(kit: Kit) {
    let engine = shop(&kit, 0).await;
    let id = engine.client().start::<Quote>(Quoting::Ask { pieces: 3 }).await.expect("a start");
    assert_eq!(engine.client().wait::<Quote>(id, SOON).await.expect("an output"), Price { cents: 600 });
    engine.shutdown().await;
}

async fn a_bad_answer_with_the_acceptance_is_asked_for_again(kit: Kit) {
    let engine = shop(&kit, 2).await;
    let client = engine.client();
    let id = client.start::<Quote>(Quoting::Ask { pieces: 3 }).await.expect("a start");
    for sends in [1, 2] {
        let waits = loop {
            let found = client.interaction(Which::Correlation("quote".to_owned())).await.expect("a read");
            match found {
                Some(found) if found.error.is_some() && found.sends == sends => break found,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        assert!(waits.status.is_open(), "{waits:?}");
        assert!(waits.error.as_deref().is_some_and(|error| error.contains("nobody pays us")), "{waits:?}");
        kit.advance(Duration::from_secs(60));
    }
    assert_eq!(client.wait::<Quote>(id, SOON).await.expect("an output"), Price { cents: 600 });
    engine.shutdown().await;
}

struct Astray;

#[derive(Serialize, Deserialize)]
enum Nowhere {
    Here,
}

impl Machine for Astray {
    const NAME: &'static str = "astray";
    type State = Nowhere;
    type Output = ();

    async fn step(&self, _: Nowhere, _: &Context) -> StepResult<Self> {
        Ok(Outcome::done(()))
    }

    fn takes() -> Vec<Takes> {
        vec![Takes::at::<u8>("Elsewhere")]
    }
}

async fn a_machine_that_takes_something_at_no_step_of_its_own_is_refused(kit: Kit) {
    let refused = kit.engine().machine(Astray).start().await.err().expect("a refusal").to_string();
    assert!(refused.contains("\"Elsewhere\", but it has no such step"), "{refused}");
}

/// An engine, and a quote for three pieces that somebody is asked for.
async fn asked(kit: &Kit) -> (Engine, InstanceId, dormouse::InteractionId) {
    let quote = Quote { transport: dormouse::INTERACTION_API };
    let engine = kit.engine().machine(quote).start().await.expect("the engine starts");
    let id = engine.client().start::<Quote>(Quoting::Ask { pieces: 3 }).await.expect("a start");
    kit.until(id, Status::AwaitingCompletion).await;
    let item = items(kit, id).await.remove(0).id;
    (engine, id, item)
}

async fn shop(kit: &Kit, bad: usize) -> Engine {
    let sending = Sending { backoff: Duration::from_secs(1), ..Sending::default() };
    let shop = AtOnce { bad: AtomicUsize::new(bad) };
    let engine = kit.engine().machine(Quote { transport: "shop" }).transport_with("shop", shop, sending);
    engine.start().await.expect("the engine starts")
}
