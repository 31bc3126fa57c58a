//! Whom an interaction is asked of, and who answered it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use dormouse::jiff::Timestamp;
use dormouse::prelude::*;
use dormouse::store::{Assigned, Completed, InteractionFilter, Refusal};
use dormouse::{
    Answering, Client, Engine, Error, Interaction, InteractionId, Json, Sent, Status, Takes, Tokens,
    Transport,
};

use super::kit::*;
use crate::kit::*;

suite![
    questions_are_asked_of_people_and_groups_and_listed_for_them,
    others_may_answer_and_who_did_is_kept,
    who_answered_is_kept_whichever_way_the_answer_came,
    a_claim_that_ends_leaves_whom_it_was_asked_of,
    names_that_cannot_be_kept_are_refused,
    a_projector_is_told_who_answers_and_when,
];

const HOUR: Duration = Duration::from_secs(3600);

/// Asks ann and bob, of the cooks; its output is who answered, as the projector was told.
struct Menu {
    transport: &'static str,
    assignee: fn(&String) -> String,
}

#[derive(Serialize, Deserialize)]
enum Asking {
    Ask,
    Told,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Told {
    dish: String,
    by: Option<String>,
    at: Timestamp,
}

impl Machine for Menu {
    const NAME: &'static str = "menu";
    type State = Asking;
    type Output = Vec<Told>;

    async fn step(&self, state: Asking, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Asking::Ask => {
                let unit = Unit::each(["ann", "bob"].map(str::to_owned)).transport(self.transport);
                Outcome::dispatch(unit.for_assignees(self.assignee).for_group("cooks"), Asking::Told)
            }
            Asking::Told => Outcome::done(cx.unit::<Told>().await?.outputs()),
        })
    }

    fn takes() -> Vec<Takes> {
        let build = |_: String, dish: String, answering: &Answering| {
            let Answering { by, at } = answering.clone();
            Ok::<_, String>(Told { dish, by, at })
        };
        vec![Takes::at::<Told>("Told").projector_with(build)]
    }
}

async fn asked(kit: &Kit, transport: &'static str) -> (Engine, dormouse::InstanceId, Vec<InteractionId>) {
    let menu = Menu { transport, assignee: String::clone };
    let engine = kit.engine().machine(menu).transport("kitchen", Kitchen).start().await.expect("it starts");
    let id = engine.client().start::<Menu>(Asking::Ask).await.expect("a start");
    if transport == "kitchen" {
        return (engine, id, Vec::new());
    }
    kit.until(id, Status::AwaitingCompletion).await;
    let items = items(kit, id).await.iter().map(|item| item.id).collect();
    (engine, id, items)
}

/// Answers at once.
struct Kitchen;

impl Transport for Kitchen {
    fn send<'a>(&'a self, _: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        Box::pin(async { Sent::Answered(Json::from(serde_json::json!("soup"))) })
    }
}

async fn listed(client: &Client, filter: InteractionFilter) -> Vec<InteractionId> {
    client.interactions(filter).await.expect("a read").items.iter().map(|item| item.id).collect()
}

fn of(assignee: Option<&str>, group: Option<&str>) -> InteractionFilter {
    let [assignee, group] = [assignee, group].map(|name| name.map(str::to_owned));
    InteractionFilter { assignee, group, ..InteractionFilter::default() }
}

async fn answered_by(client: &Client, id: InteractionId) -> Option<String> {
    client.interaction(id).await.expect("a read").expect("it is there").answered_by
}

async fn questions_are_asked_of_people_and_groups_and_listed_for_them(kit: Kit) {
    let (engine, id, items) = asked(&kit, "api").await;
    let client = engine.client();
    let worker = kit.worker("w").await;
    let unasked = parked(&kit, worker, one("a")).await;
    let (ann, bob) = (items[0], items[1]);
    let shown = client.interaction(ann).await.expect("a read").expect("it is there");
    assert_eq!((shown.for_assignee.as_deref(), shown.for_group.as_deref()), (Some("ann"), Some("cooks")));
    let open = Some(dormouse::InteractionStatus::Pending);
    for (status, instance) in [(None, None), (open, None), (None, Some(id))] {
        let listed = async |assignee, group| {
            listed(&client, InteractionFilter { status, instance, ..of(assignee, group) }).await
        };
        assert_eq!(listed(Some("ann"), None).await, [ann]);
        assert_eq!(listed(Some("bob"), Some("cooks")).await, [bob]);
        assert_eq!(listed(None, Some("cooks")).await, [ann, bob]);
        assert!(listed(Some("ann"), Some("waiters")).await.is_empty());
        assert!(listed(Some("cooks"), None).await.is_empty(), "a group is no person");
    }
    let counts = client.count_interactions(of(None, Some("cooks"))).await.expect("a read");
    assert_eq!(counts.iter().map(|count| count.count).sum::<u64>(), 2);
    let unasked = items_of(&kit, unasked).await;
    assert_eq!((unasked.for_assignee, unasked.for_group, unasked.answered_by), (None, None, None));
    engine.shutdown().await;
}

async fn items_of(kit: &Kit, id: dormouse::InstanceId) -> Interaction {
    items(kit, id).await.remove(0)
}

async fn others_may_answer_and_who_did_is_kept(kit: Kit) {
    let (engine, id, items) = asked(&kit, "api").await;
    let client = engine.client();
    client.complete_as("carla", items[0], &"soup").await.expect("she was not asked, and may answer");
    assert_eq!(answered_by(&client, items[0]).await.as_deref(), Some("carla"));
    // A claim keeps others out, whoever was asked.
    let claimed = client.claim_interaction(items[1], "carla", HOUR).await.expect("a claim");
    assert!(matches!(claimed, Assigned::Until(_)));
    assert_eq!(listed(&client, of(Some("carla"), None)).await, [items[1]], "what she has claimed");
    assert_eq!(listed(&client, of(Some("bob"), None)).await, [items[1]], "what he was asked");
    let refused = client.complete_as("bob", items[1], &"pie").await;
    assert!(
        matches!(refused, Err(Error::CompletionRefused { refusal: Refusal::Claimed, .. })),
        "{refused:?}"
    );
    client.complete_as("carla", items[1], &"pie").await.expect("it is hers");
    assert_eq!(answered_by(&client, items[1]).await.as_deref(), Some("carla"));
    let again = client.complete_as("bob", items[1], &"fish").await.expect("a repeat");
    assert!(matches!(again, Completed::Repeat(_)));
    assert_eq!(answered_by(&client, items[1]).await.as_deref(), Some("carla"), "a repeat changes nothing");
    client.wait::<Menu>(id, SOON).await.expect("an output");
    engine.shutdown().await;
}

async fn who_answered_is_kept_whichever_way_the_answer_came(kit: Kit) {
    let (engine, _, items) = asked(&kit, "api").await;
    let client = engine.client();
    let tokens = Tokens::new("k1", b"a secret of more than thirty-two bytes").expect("a key");
    let shown = client.interaction(items[0]).await.expect("a read").expect("it is there");
    let token = tokens.issue(&shown, kit.now() + HOUR);
    let dish = Json::from(serde_json::json!("soup"));
    client.complete_by_token(&tokens, &token, Ok(dish)).await.expect("an answer");
    assert_eq!(answered_by(&client, items[0]).await.as_deref(), Some("resume token"));
    client.fail_as("ann", items[1], "no eggs").await.expect("an answer");
    assert_eq!(answered_by(&client, items[1]).await.as_deref(), Some("ann"));
    engine.shutdown().await;

    let (engine, id, _) = asked(&kit, "kitchen").await;
    let told = engine.client().wait::<Menu>(id, SOON).await.expect("an output");
    assert!(told.iter().all(|told| told.by.as_deref() == Some("kitchen")), "{told:?}");
    let all = engine.client().interactions(InteractionFilter { instance: Some(id), ..of(None, None) }).await;
    let by: Vec<_> = all.expect("a read").items.into_iter().map(|item| item.answered_by).collect();
    assert_eq!(by, [Some("kitchen".to_owned()), Some("kitchen".to_owned())]);
    engine.shutdown().await;

    let (engine, _, items) = asked(&kit, "api").await;
    let client = engine.client();
    client.complete(items[0], &"soup").await.expect("an answer");
    assert_eq!(answered_by(&client, items[0]).await, None, "nobody said who");
    kit.client()
        .cancel(client.interaction(items[1]).await.expect("a read").expect("it is there").instance)
        .await
        .expect("a cancel");
    assert_eq!(answered_by(&client, items[1]).await, None, "nobody answered");
    engine.shutdown().await;
}

async fn a_claim_that_ends_leaves_whom_it_was_asked_of(kit: Kit) {
    let (engine, _, items) = asked(&kit, "api").await;
    let client = engine.client();
    client.claim_interaction(items[0], "bob", HOUR).await.expect("a claim");
    kit.advance(HOUR);
    assert_eq!(listed(&client, of(Some("bob"), None)).await, [items[1]]);
    assert_eq!(listed(&client, of(Some("ann"), None)).await, [items[0]]);
    client.claim_interaction(items[0], "ann", HOUR).await.expect("a claim");
    client.claim_interaction(items[0], "ann", Duration::ZERO).await.expect("it is given back");
    assert_eq!(listed(&client, of(Some("ann"), None)).await, [items[0]]);
    engine.shutdown().await;
}

async fn names_that_cannot_be_kept_are_refused(kit: Kit) {
    let menu = Menu { transport: "api", assignee: |_| "a".repeat(256) };
    let engine = kit.engine().machine(menu).start().await.expect("it starts");
    let id = engine.client().start::<Menu>(Asking::Ask).await.expect("a start");
    let failed = kit.until(id, Status::Failed).await.last_error.expect("a reason");
    assert!(failed.contains("the assignee") && failed.contains("over 255 bytes"), "{failed}");
    engine.shutdown().await;
    let (engine, _, items) = asked(&kit, "api").await;
    for name in ["", "a\0b", &"a".repeat(256)] {
        let refused = engine.client().complete_as(name, items[0], &"soup").await;
        assert!(matches!(refused, Err(Error::InvalidName { what: "assignee", .. })), "{refused:?}");
    }
    assert!(
        engine.client().interaction(items[0]).await.expect("a read").expect("it is there").status.is_open()
    );
    engine.shutdown().await;
}

async fn a_projector_is_told_who_answers_and_when(kit: Kit) {
    let (engine, id, items) = asked(&kit, "api").await;
    let (client, at) = (engine.client(), kit.now());
    client.complete_as("ann", items[0], &"soup").await.expect("an answer");
    kit.advance(HOUR);
    client.complete(items[1], &"pie").await.expect("an answer");
    let told = client.wait::<Menu>(id, SOON).await.expect("an output");
    let told_of =
        |dish: &str, by: Option<&str>, at| Told { dish: dish.to_owned(), by: by.map(str::to_owned), at };
    assert_eq!(told, [told_of("soup", Some("ann"), at), told_of("pie", None, at + HOUR)]);
    engine.shutdown().await;
}
