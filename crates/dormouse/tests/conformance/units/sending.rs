//! Sending, by engines: from what was committed, until it is accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Completed, Refusal, Which};
use dormouse::{
    Dispatch, Engine, Error, Fault, Interaction, InteractionStatus, Json, Sending, Sent, Shape, Status,
    Takes, Tokens, Transition, Transport, UnitStatus, Verdict,
};
use tokio::sync::{Notify, watch};

use super::kit::*;
use crate::faulty::Faulty;
use crate::kit::*;
use crate::slow::Slow;

suite![
    what_is_asked_is_sent_and_the_answers_come_in_item_order,
    an_answer_that_comes_with_the_acceptance_is_the_answer,
    an_answer_that_is_no_list_though_one_was_asked_for_fails_the_item,
    an_answer_that_comes_before_the_acceptance_is_the_answer,
    what_is_not_accepted_is_sent_again_with_the_same_key,
    what_is_never_accepted_is_given_up,
    what_a_dead_sender_had_in_its_hands_is_sent_again_with_the_same_key,
    a_transport_that_panics_is_tried_again,
    an_answer_that_the_store_cannot_check_for_a_moment_is_not_rejected,
    senders_share_the_outbox_and_send_once,
    no_more_are_under_way_than_allowed,
    a_token_answers_its_interaction_once,
    a_step_that_was_parked_on_no_unit_is_told_so,
    an_output_that_the_step_does_not_take_is_refused_at_the_door,
    an_engine_refuses_transports_that_could_not_send,
];

const SECRET: &[u8] = b"a secret of more than thirty-two bytes";

async fn what_is_asked_is_sent_and_the_answers_come_in_item_order(kit: Kit) {
    let bank = Partner::new(|_| Sent::Accepted);
    let engine = serve(&kit, &bank, each(&["a", "b", "c"])).await;
    let id = kit.insert(m()).await;
    bank.got(3).await;
    kit.until_sent(3).await;
    for item in items(&kit, id).await.iter().rev() {
        assert_eq!((item.status, item.sends), (InteractionStatus::Dispatched, 1));
        engine.client().complete(item.id, &item.item).await.expect("a completion");
    }
    assert_eq!(kit.until(id, Status::Done).await.output, json(r#"["completed","0","1","2"]"#));
    kit.story(id).await;
    engine.shutdown().await;
}

async fn an_answer_that_comes_with_the_acceptance_is_the_answer(kit: Kit) {
    let bank =
        Partner::new(|interaction| Sent::Answered(Json::from(serde_json::json!(interaction.item * 10))));
    let engine = serve(&kit, &bank, each(&["a", "b"])).await;
    let id = kit.insert(m()).await;
    assert_eq!(kit.until(id, Status::Done).await.output, json(r#"["completed","0","10"]"#));
    engine.shutdown().await;
}

async fn an_answer_that_is_no_list_though_one_was_asked_for_fails_the_item(kit: Kit) {
    let bank = Partner::new(|_| Sent::Answered(Json::from(serde_json::json!(7))));
    let engine = serve(&kit, &bank, Dispatch { shape: Shape::OneToMany, ..one("a") }).await;
    let id = kit.insert(m()).await;
    let output = kit.until(id, Status::Done).await.output.expect("an output").to_string();
    assert!(output.starts_with(r#"["failed","its unit expects a list"#), "{output}");
    assert_eq!(bank.log().len(), 1);
    engine.shutdown().await;
}

async fn an_answer_that_comes_before_the_acceptance_is_the_answer(kit: Kit) {
    let hold = Arc::new(Notify::new());
    let bank = Partner::new(|_| Sent::Accepted).hold(hold.clone());
    let engine = serve(&kit, &bank, one("a")).await;
    let id = kit.insert(m()).await;
    bank.got(1).await;
    let item = items(&kit, id).await.remove(0);
    engine.client().complete(item.id, &7).await.expect("a completion");
    assert_eq!(kit.until(id, Status::Done).await.output, json(r#"["completed","7"]"#));
    let ended = kit.get(id).await;
    hold.notify_one();
    engine.shutdown().await;
    assert_eq!(kit.get(id).await, ended, "the acceptance that came later changes nothing");
}

async fn what_is_not_accepted_is_sent_again_with_the_same_key(kit: Kit) {
    let bank = Partner::new(|interaction| match interaction.sends {
        1 => Sent::Retry { reason: "busy".to_owned(), after: Some(Duration::from_secs(3600)) },
        2 => Sent::Retry { reason: "busy".to_owned(), after: None },
        _ => Sent::Accepted,
    });
    let engine = serve(&kit, &bank, one("a")).await;
    let id = kit.insert(m()).await;
    kit.until_error(1).await;
    let waits = items(&kit, id).await.remove(0);
    assert!(
        waits.send_at >= Some(kit.now() + Duration::from_secs(3600)),
        "it waits as long as it was asked to"
    );
    kit.advance(Duration::from_secs(3600));
    bank.got(2).await;
    kit.until_error(2).await;
    kit.advance(Duration::from_secs(300));
    bank.got(3).await;
    kit.until_sent(1).await;
    let keys: Vec<_> = bank.log().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["key-0", "key-0", "key-0"]);
    engine.shutdown().await;
}

async fn what_is_never_accepted_is_given_up(kit: Kit) {
    let bank = Partner::new(|_| Sent::Retry { reason: "busy".to_owned(), after: None });
    let sending = Sending { give_up_after: Duration::from_secs(1), ..Sending::default() };
    let sending = Sending { backoff: Duration::from_secs(2), ..sending };
    let engine = serve_with(&kit, &bank, one("a"), sending).await;
    let id = kit.insert(m()).await;
    let output = kit.until(id, Status::Done).await.output.expect("an output").to_string();
    assert!(
        output.starts_with(r#"["failed","given up after 1 tries"#) && output.contains("busy"),
        "{output}"
    );
    assert_eq!(unit(&kit, id).await.status, UnitStatus::Failed);
    engine.shutdown().await;
}

async fn what_a_dead_sender_had_in_its_hands_is_sent_again_with_the_same_key(kit: Kit) {
    let stuck = Partner::new(|_| Sent::Accepted).hold(Arc::new(Notify::new()));
    let first = serve(&kit, &stuck, each(&["a", "b"])).await;
    let id = kit.insert(m()).await;
    stuck.got(2).await;
    // As a crash would: after the send, before anything of it is written down.
    drop(first);
    let bank = Partner::new(|_| Sent::Accepted);
    let second = serve(&kit, &bank, each(&[])).await;
    // The first may not have noticed yet that it is dead, and take them once more: then another lease must run out.
    let mut leases = 0;
    while tokio::time::timeout(Duration::from_secs(1), bank.got(2)).await.is_err() {
        leases += 1;
        assert!(leases < 30, "they are sent again soon");
        kit.advance(Duration::from_secs(66));
    }
    kit.until_sent(2).await;
    let keys = |partner: &Partner| partner.log().into_iter().map(|(key, _)| key).collect::<BTreeSet<_>>();
    assert_eq!(keys(&stuck), keys(&bank));
    assert!(items(&kit, id).await.iter().all(|item| item.sends >= 2));
    second.shutdown().await;
}

async fn a_transport_that_panics_is_tried_again(kit: Kit) {
    let bank = Partner::new(|interaction| match interaction.sends {
        1 => panic!("a bug in the transport"),
        _ => Sent::Accepted,
    });
    let sending = Sending { backoff: Duration::from_millis(1), ..Sending::default() };
    let engine = serve_with(&kit, &bank, one("a"), sending).await;
    kit.insert(m()).await;
    kit.until_error(1).await;
    kit.advance(Duration::from_secs(1));
    kit.until_sent(1).await;
    engine.shutdown().await;
}

/// An engine sends for machines of other services too; what those take, it reads from the store.
async fn an_answer_that_the_store_cannot_check_for_a_moment_is_not_rejected(kit: Kit) {
    let store = Arc::new(Faulty::on(kit.store.clone()));
    store.refuse_next("declared", usize::MAX);
    let bank = Partner::new(|_| Sent::Answered(Json::from(serde_json::json!("yes"))));
    let sending = Sending { backoff: Duration::from_millis(1), ..Sending::default() };
    let engine = Engine::on(store.clone()).transport_with("bank", bank.clone(), sending);
    let engine = engine.lease(Duration::from_secs(u32::MAX.into())).start().await.expect("the engine starts");
    let worker = kit.worker("elsewhere").await;
    let id = parked(&kit, worker, Dispatch { transport: "bank".to_owned(), ..one("a") }).await;
    kit.until_error(1).await;
    store.refuse_next("declared", 0);
    kit.advance(Duration::from_secs(1));
    kit.until_items(|item| item.status == InteractionStatus::Completed, 1).await;
    assert_eq!(verdicts(&kit, id).await, [r#"completed "yes""#]);
    engine.shutdown().await;
}

async fn senders_share_the_outbox_and_send_once(kit: Kit) {
    let bank = Partner::new(|_| Sent::Accepted);
    let names: Vec<String> = (0..120).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let dispatch = Dispatch { in_flight: Some(1000), ..each(&names) };
    let engines = [serve(&kit, &bank, dispatch.clone()).await, serve(&kit, &bank, dispatch.clone()).await];
    kit.insert(m()).await;
    kit.until_sent(120).await;
    let mut sent: BTreeMap<String, usize> = BTreeMap::new();
    bank.log().into_iter().for_each(|(key, _)| *sent.entry(key).or_default() += 1);
    assert_eq!((sent.len(), sent.values().max()), (120, Some(&1)));
    for engine in engines {
        engine.shutdown().await;
    }
}

async fn no_more_are_under_way_than_allowed(kit: Kit) {
    let bank = Partner::new(|_| Sent::Accepted).slow();
    let sending = Sending { concurrency_max: 3, ..Sending::default() };
    let names = ["x"; 30];
    let engine = serve_with(&kit, &bank, each(&names), sending).await;
    kit.insert(m()).await;
    kit.until_sent(30).await;
    assert!(bank.most_at_once.load(Ordering::SeqCst) <= 3);
    engine.shutdown().await;
}

async fn a_token_answers_its_interaction_once(kit: Kit) {
    let bank = Partner::new(|_| Sent::Accepted);
    let engine = serve(&kit, &bank, one("a")).await;
    let id = kit.insert(m()).await;
    kit.until_sent(1).await;
    let item = items(&kit, id).await.remove(0);
    let tokens = Tokens::new("k1", SECRET).expect("a key");
    let token = tokens.issue(&item, kit.now() + Duration::from_secs(60));
    let client = engine.client();
    let foreign =
        client.in_namespace("other").expect("a name").complete_by_token(&tokens, &token, yes()).await;
    assert!(matches!(foreign, Err(Error::TokenRefused(Refusal::OtherNamespace))), "{foreign:?}");
    let unsent = tokens.issue(&Interaction { sends: 9, ..item.clone() }, kit.now() + Duration::from_secs(60));
    let forged = client.complete_by_token(&tokens, &unsent, yes()).await;
    assert!(matches!(forged, Err(Error::CompletionRefused { refusal: Refusal::Forged, .. })), "{forged:?}");
    let expired = tokens.issue(&item, kit.now() - Duration::from_secs(1));
    let expired = client.complete_by_token(&tokens, &expired, yes()).await;
    assert!(
        matches!(expired, Err(Error::CompletionRefused { refusal: Refusal::Expired, .. })),
        "{expired:?}"
    );
    let first = client.complete_by_token(&tokens, &token, yes()).await.expect("a completion");
    assert_eq!(first, Completed::Admitted { woke: true });
    let again = client.complete_by_token(&tokens, &token, Err("no".to_owned())).await.expect("an answer");
    assert_eq!(again, Completed::Repeat(yes()));
    assert_eq!(kit.until(id, Status::Done).await.output, json(r#"["completed","\"yes\""]"#));
    engine.shutdown().await;
}

async fn a_step_that_was_parked_on_no_unit_is_told_so(kit: Kit) {
    let engine = kit
        .engine()
        .dyn_machine(Arc::new(Slow::new(|_, cx| async move {
            cx.unit::<i64>().await.map_err(|error| Fault::Failed(Box::new(error)))?;
            Ok(done())
        })))
        .start()
        .await
        .expect("the engine starts");
    let id = kit.insert(m()).await;
    let failed = kit.until(id, Status::Failed).await.last_error.expect("a reason");
    assert!(failed.contains("was not parked on a unit"), "{failed}");
    engine.shutdown().await;
}

struct Careful;

#[derive(Serialize, Deserialize)]
enum Counting {
    Ask,
    Read,
}

impl Machine for Careful {
    const NAME: &'static str = "careful";
    type State = Counting;
    type Output = u8;

    async fn step(&self, state: Counting, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Counting::Ask => {
                let unit = Unit::one("how many?").correlation_id(|_| "q".to_owned());
                Outcome::dispatch(unit, Counting::Read)
            }
            Counting::Read => Outcome::done(cx.unit::<u8>().await?.one()?),
        })
    }

    fn takes() -> Vec<Takes> {
        vec![Takes::at::<u8>("Read")]
    }
}

async fn an_output_that_the_step_does_not_take_is_refused_at_the_door(kit: Kit) {
    let engine = kit.engine().machine(Careful).start().await.expect("the engine starts");
    let client = engine.client();
    let id = client.start::<Careful>(Counting::Ask).await.expect("a start");
    kit.until(id, Status::AwaitingCompletion).await;
    let item = items(&kit, id).await.remove(0).id;
    let question = || Which::Correlation("q".to_owned());
    for to in [Which::Id(item), question()] {
        let refused = client.complete(to, &"a lot").await;
        assert!(
            matches!(refused, Err(Error::CompletionRefused { refusal: Refusal::Malformed, .. })),
            "{refused:?}"
        );
    }
    let batch = [serde_json::json!(-1), serde_json::json!(3), serde_json::json!("x"), serde_json::json!(4)];
    let batch = batch.map(|output| client.completion(question(), Ok(Json::from(output)))).to_vec();
    let malformed =
        |reason: &str| Completed::Unfit { refusal: Refusal::Malformed, reason: reason.to_owned() };
    let repeat = Completed::Repeat(Ok(Json::from(serde_json::json!(3))));
    let expected = [
        malformed("invalid value: integer `-1`, expected u8 at line 1 column 2"),
        Completed::Admitted { woke: true },
        malformed("invalid type: string \"x\", expected u8 at line 1 column 3"),
        repeat,
    ];
    assert_eq!(client.complete_many(batch).await.expect("answers"), expected);
    assert_eq!(client.wait::<Careful>(id, SOON).await.expect("an output"), 3);
    engine.shutdown().await;
}

async fn an_engine_refuses_transports_that_could_not_send(kit: Kit) {
    let bank = || Partner::new(|_| Sent::Accepted);
    let none = Sending { concurrency_max: 0, ..Sending::default() };
    let mistakes = [
        kit.engine().transport("api", bank()),
        kit.engine().transport("bank", bank()).transport("bank", bank()),
        kit.engine().transport_with("bank", bank(), none),
        kit.engine().transport("", bank()),
    ];
    for mistake in mistakes {
        assert!(mistake.start().await.is_err());
    }
}

/// The outside world: what it does with a request, and what it got.
#[derive(Clone)]
struct Partner {
    answer: Arc<dyn Fn(&Interaction) -> Sent + Send + Sync>,
    log: Arc<Mutex<Vec<(String, u32)>>>,
    got: Arc<watch::Sender<usize>>,
    hold: Option<Arc<Notify>>,
    slow: bool,
    at_once: Arc<AtomicUsize>,
    most_at_once: Arc<AtomicUsize>,
}

impl Partner {
    fn new(answer: impl Fn(&Interaction) -> Sent + Send + Sync + 'static) -> Self {
        Self {
            answer: Arc::new(answer),
            log: Arc::default(),
            got: Arc::new(watch::Sender::new(0)),
            hold: None,
            slow: false,
            at_once: Arc::default(),
            most_at_once: Arc::default(),
        }
    }

    /// Says that it accepts only when told to.
    fn hold(self, until: Arc<Notify>) -> Self {
        Self { hold: Some(until), ..self }
    }

    /// Lets others go first.
    fn slow(self) -> Self {
        Self { slow: true, ..self }
    }

    /// Waits until it got so many requests.
    async fn got(&self, requests: usize) {
        let mut got = self.got.subscribe();
        let enough = tokio::time::timeout(SOON, got.wait_for(|got| *got >= requests)).await;
        enough.expect("the requests come soon").expect("the partner is there");
    }

    fn log(&self) -> Vec<(String, u32)> {
        self.log.lock().expect("no panic").clone()
    }
}

impl Transport for Partner {
    fn send<'a>(&'a self, interaction: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        Box::pin(async move {
            let at_once = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_at_once.fetch_max(at_once, Ordering::SeqCst);
            self.log.lock().expect("no panic").push((interaction.idempotency_key.clone(), interaction.sends));
            self.got.send_modify(|got| *got += 1);
            if let Some(hold) = &self.hold {
                hold.notified().await;
            }
            if self.slow {
                tokio::task::yield_now().await;
            }
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            (self.answer)(interaction)
        })
    }
}

async fn serve(kit: &Kit, bank: &Partner, dispatch: Dispatch) -> Engine {
    serve_with(kit, bank, dispatch, Sending::default()).await
}

/// An engine whose machine asks the bank, and is done with how the unit was closed and what each item became.
async fn serve_with(kit: &Kit, bank: &Partner, dispatch: Dispatch, sending: Sending) -> Engine {
    let dispatch = Dispatch { transport: "bank".to_owned(), ..dispatch };
    let machine = Slow::new(move |at, cx| {
        let dispatch = dispatch.clone();
        async move {
            if at.step == "start" {
                return Ok(Transition::Dispatch(dispatch));
            }
            Ok(Transition::Done { output: told(&cx).await.map_err(Fault::Failed)? })
        }
    });
    let engine = kit.engine().dyn_machine(Arc::new(machine)).transport_with("bank", bank.clone(), sending);
    engine.start().await.expect("the engine starts")
}

async fn told(cx: &Context) -> Result<Json, BoxError> {
    let mut stream = cx.unit_stream::<Json>().await?;
    let mut words = vec![stream.unit().status.to_string()];
    while let Some(verdict) = stream.next().await? {
        words.push(match verdict {
            Verdict::Completed(output) => output.to_string(),
            Verdict::Failed(reason) => reason,
            Verdict::TimedOut => "timed out".to_owned(),
            Verdict::Cancelled => "cancelled".to_owned(),
        });
    }
    Ok(Json::encode("words", &words)?)
}

fn yes() -> Result<Json, String> {
    Ok(Json::from(serde_json::json!("yes")))
}

fn json(text: &str) -> Option<Json> {
    Some(Json::parse("expected", text).expect("JSON"))
}

impl Kit {
    /// Waits until so many interactions are written down as sent.
    async fn until_sent(&self, count: usize) {
        self.until_items(|item| item.status == InteractionStatus::Dispatched, count).await;
    }

    /// Waits until an interaction that was sent so often waits to be sent again.
    async fn until_error(&self, sends: u32) {
        self.until_items(|item| item.error.is_some() && item.sends == sends, 1).await;
    }

    async fn until_items(&self, wanted: impl Fn(&Interaction) -> bool, count: usize) {
        let deadline = tokio::time::Instant::now() + SOON;
        let mut changes = self.store.hub().changes();
        loop {
            changes.borrow_and_update();
            let filter = dormouse::store::InteractionFilter { limit: 1000, ..Default::default() };
            let all = self.store.interactions(filter).await.expect("a read").items;
            if all.iter().filter(|item| wanted(item)).count() >= count {
                return;
            }
            let moved = tokio::time::timeout_at(deadline, changes.changed()).await;
            assert!(moved.is_ok(), "not so soon: {all:?}");
        }
    }
}
