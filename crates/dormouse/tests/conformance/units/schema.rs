//! Outputs that are checked against a JSON Schema, at the door.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Completed, Refusal, Which};
use dormouse::{
    Client, Engine, Error, INTERACTION_API, Interaction, InteractionStatus, Json, Sending, Sent, Status,
    Takes, Tokens, Transport,
};
use serde_json::{Value, json};

use super::kit::*;
use crate::kit::*;

suite![
    an_answer_that_does_not_fit_is_refused_by_every_way_in_and_the_interaction_waits_on,
    a_process_without_the_code_holds_answers_against_the_same_schema,
    an_answer_with_the_acceptance_is_held_against_the_schema_too,
    a_schema_that_cannot_be_used_or_would_have_to_be_fetched_is_told_at_the_start,
];

/// Asks for a list of offers.
struct Offers {
    transport: &'static str,
}

#[derive(Serialize, Deserialize)]
enum Asking {
    Ask,
    Told,
}

impl Machine for Offers {
    const NAME: &'static str = "offers";
    type State = Asking;
    type Output = usize;

    async fn step(&self, state: Asking, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Asking::Ask => {
                let unit = Unit::one_to_many("offers").correlation_id(|_| "offers".to_owned());
                Outcome::dispatch(unit.transport(self.transport), Asking::Told)
            }
            Asking::Told => Outcome::done(cx.unit::<Value>().await?.outputs().len()),
        })
    }

    fn takes() -> Vec<Takes> {
        let offer = json!({ "type": "object", "required": ["price"], "additionalProperties": false,
            "properties": { "price": { "$ref": "#/$defs/cents" }, "note": { "type": "string", "maxLength": 5 } } });
        let schema = json!({ "type": "array", "minItems": 1, "items": offer,
            "$defs": { "cents": { "type": "integer", "minimum": 0 } } });
        vec![Takes::at::<Vec<Value>>("Told").schema(schema)]
    }
}

async fn an_answer_that_does_not_fit_is_refused_by_every_way_in_and_the_interaction_waits_on(kit: Kit) {
    let engine =
        kit.engine().machine(Offers { transport: INTERACTION_API }).start().await.expect("it starts");
    answers_are_held_against_the_schema(&kit, engine.client(), engine).await;
}

async fn a_process_without_the_code_holds_answers_against_the_same_schema(kit: Kit) {
    let outside = kit.client();
    assert!(outside.declarations().await.expect("a read").is_empty(), "it was there before any worker");
    let engine =
        kit.engine().machine(Offers { transport: INTERACTION_API }).start().await.expect("it starts");
    answers_are_held_against_the_schema(&kit, outside, engine).await;
}

async fn answers_are_held_against_the_schema(kit: &Kit, client: Client, engine: Engine) {
    let id = client.start::<Offers>(Asking::Ask).await.expect("a start");
    kit.until(id, Status::AwaitingCompletion).await;
    let item = items(kit, id).await.remove(0);
    let tokens = Tokens::new("k1", b"a secret of more than thirty-two bytes").expect("a key");
    let token = tokens.issue(&item, kit.now() + Duration::from_secs(60));
    let by_correlation = || Which::Correlation("offers".to_owned());
    for (answer, place) in [
        (json!({}), "at the top: "),
        (json!([]), "at the top: "),
        (json!([{ "price": 1 }, { "price": -1 }]), "at /1/price: "),
        (json!([{ "price": "1" }]), "at /0/price: "),
        (json!([{ "note": "?" }]), "at /0: "),
        (json!([{ "price": 1, "note": "a secret" }]), "at /0/note: "),
    ] {
        let answer = Json::from(answer);
        let refused = [
            client.complete(item.id, &answer).await,
            client.complete(by_correlation(), &answer).await,
            client.complete_as("ada", item.id, &answer).await,
            client.complete_by_token(&tokens, &token, Ok(answer.clone())).await,
        ];
        for refused in refused {
            let Err(Error::CompletionRefused { refusal: Refusal::Schema, reason: Some(reason), .. }) =
                refused
            else {
                panic!("{refused:?}")
            };
            assert!(reason.starts_with(place) && !reason.contains("secret"), "{reason}");
        }
        let both = vec![
            client.completion(by_correlation(), Ok(answer.clone())),
            client.completion(item.id.into(), Ok(answer)),
        ];
        for refused in client.complete_many(both).await.expect("answers") {
            assert!(matches!(refused, Completed::Unfit { refusal: Refusal::Schema, .. }), "{refused:?}");
        }
    }
    let waits = client.interaction(item.id).await.expect("a read").expect("it is there");
    assert_eq!((waits.status, waits.answered), (InteractionStatus::Pending, false));
    client.complete(item.id, &json!([{ "price": 1, "note": "fine" }])).await.expect("a completion");
    assert_eq!(client.wait::<Offers>(id, SOON).await.expect("an output"), 1);
    engine.shutdown().await;
}

/// Says with its acceptance what does not fit.
struct Wrong;

impl Transport for Wrong {
    fn send<'a>(&'a self, _: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        Box::pin(async { Sent::Answered(Json::from(json!([{ "price": "a lot" }]))) })
    }
}

async fn an_answer_with_the_acceptance_is_held_against_the_schema_too(kit: Kit) {
    let sending = Sending { backoff: Duration::from_secs(3600), ..Sending::default() };
    let engine = kit.engine().machine(Offers { transport: "shop" }).transport_with("shop", Wrong, sending);
    let engine = engine.start().await.expect("it starts");
    let client = engine.client();
    let id = client.start::<Offers>(Asking::Ask).await.expect("a start");
    let waits = loop {
        match client.interaction(Which::Correlation("offers".to_owned())).await.expect("a read") {
            Some(found) if found.error.is_some() => break found,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let error = waits.error.as_deref().expect("a reason");
    assert!(waits.status.is_open() && error.contains("at /0/price: "), "{waits:?}");
    client.complete(waits.id, &json!([{ "price": 1 }])).await.expect("a completion, some other way");
    assert_eq!(client.wait::<Offers>(id, SOON).await.expect("an output"), 1);
    engine.shutdown().await;
}

/// Declares what no answer can be held against.
macro_rules! mistaken {
    ($name:ident, $schema:expr) => {
        struct $name;

        impl Machine for $name {
            const NAME: &'static str = "mistaken";
            type State = Asking;
            type Output = ();

            async fn step(&self, _: Asking, _: &Context) -> StepResult<Self> {
                Ok(Outcome::done(()))
            }

            fn takes() -> Vec<Takes> {
                vec![Takes::at::<Value>("Told").schema($schema)]
            }
        }
    };
}

mistaken!(NoSuchType, json!({ "type": "integre" }));
mistaken!(Elsewhere, json!({ "$ref": "https://schemas.example/offers.json" }));
mistaken!(OnDisk, json!({ "$ref": "file:///etc/passwd" }));

async fn a_schema_that_cannot_be_used_or_would_have_to_be_fetched_is_told_at_the_start(kit: Kit) {
    for engine in
        [kit.engine().machine(NoSuchType), kit.engine().machine(Elsewhere), kit.engine().machine(OnDisk)]
    {
        let refused = engine.start().await.err().expect("a refusal").to_string();
        assert!(refused.contains("the schema of what it takes at \"Told\" cannot be used"), "{refused}");
    }
}
