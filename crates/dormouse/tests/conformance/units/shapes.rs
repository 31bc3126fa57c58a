//! The shapes over a batch, what is refused before anything is asked, and more late items than are resolved in one go.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Completed, InteractionFilter, Refusal};
use dormouse::{
    Ask, Dispatch, Engine, EventKind, InstanceId, Interaction, Json, Limits, OnFailure, Shape, Status,
    Transition, UnitStatus, Verdict, Wake,
};
use serde_json::json;

use super::kit::*;
use crate::kit::*;
use crate::slow::Slow;

suite![
    a_batch_is_one_request_and_one_output,
    a_batch_is_one_request_and_a_list_of_outputs,
    a_batch_that_fails_or_is_late_has_no_output,
    a_batch_of_nothing_is_asked_all_the_same,
    what_could_not_be_asked_goes_to_the_handler,
    more_late_items_than_fit_in_one_go_are_resolved_in_several,
    a_unit_fails_fast_though_more_items_are_late_than_fit_in_one_go,
];

/// Asks over a batch of numbers.
struct Batches;

#[derive(Serialize, Deserialize)]
enum Batch {
    Sum(Vec<u32>),
    Double(Vec<u32>),
    Summed,
    Doubled,
}

impl Machine for Batches {
    const NAME: &'static str = "batches";
    type State = Batch;
    type Output = Vec<String>;

    async fn step(&self, state: Batch, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Batch::Sum(numbers) => {
                Outcome::dispatch(Unit::many_to_one(numbers).timeout(Duration::from_secs(60)), Batch::Summed)
            }
            Batch::Double(numbers) => Outcome::dispatch(Unit::many_to_many(numbers), Batch::Doubled),
            Batch::Summed => Outcome::done(vec![cx.unit::<u32>().await?.one()?.to_string()]),
            Batch::Doubled => {
                let answers = cx.unit::<u32>().await?;
                let told = |verdict: &Verdict<u32>| format!("{verdict:?}");
                Outcome::done(answers.verdicts.iter().map(told).collect())
            }
        })
    }
}

async fn batch(kit: &Kit, start: Batch) -> (Engine, InstanceId, Interaction) {
    let limits = Limits { items_max: 4, ..Limits::default() };
    let engine = kit.engine().limits(limits).machine(Batches).start().await.expect("the engine starts");
    let id = engine.client().start::<Batches>(start).await.expect("a start");
    kit.until(id, Status::AwaitingCompletion).await;
    let mut asked = items(kit, id).await;
    assert_eq!(asked.len(), 1, "one request over the whole batch");
    (engine, id, asked.remove(0))
}

async fn a_batch_is_one_request_and_one_output(kit: Kit) {
    let (engine, id, asked) = batch(&kit, Batch::Sum(vec![1, 2, 3])).await;
    assert_eq!((unit(&kit, id).await.shape, asked.request.as_str()), (Shape::ManyToOne, "[1,2,3]"));
    engine.client().complete(asked.id, &6).await.expect("a list is not asked for");
    assert_eq!(engine.client().wait::<Batches>(id, SOON).await.expect("an output"), ["6"]);
    assert_eq!(
        kit.story(id).await[1..4],
        [EventKind::UnitOpened, EventKind::InteractionCompleted, EventKind::UnitCompleted]
    );
    engine.shutdown().await;
}

async fn a_batch_is_one_request_and_a_list_of_outputs(kit: Kit) {
    let (engine, id, asked) = batch(&kit, Batch::Double(vec![1, 2, 3])).await;
    assert_eq!((unit(&kit, id).await.shape, asked.request.as_str()), (Shape::ManyToMany, "[1,2,3]"));
    for refused in [json!(6), json!({ "outputs": [2] }), json!([1, 2, 3, 4, 5])] {
        let refused = complete(&kit, asked.id, &refused).await;
        assert_eq!(refused, Completed::Refused(Refusal::NotAList), "it stays open for a list that fits");
    }
    // As many as there are, not as many as were asked.
    engine.client().complete(asked.id, &[2, 4]).await.expect("a list");
    let told = engine.client().wait::<Batches>(id, SOON).await.expect("an output");
    assert_eq!(told, ["Completed(2)", "Completed(4)"]);
    engine.shutdown().await;
}

async fn a_batch_that_fails_or_is_late_has_no_output(kit: Kit) {
    let (engine, id, asked) = batch(&kit, Batch::Double(vec![1, 2])).await;
    engine.client().fail(asked.id, "the list is torn").await.expect("an answer");
    let told = engine.client().wait::<Batches>(id, SOON).await.expect("an output");
    assert_eq!(told, [r#"Failed("the list is torn")"#]);
    assert_eq!(kit.story(id).await[2..4], [EventKind::InteractionFailed, EventKind::UnitFailed]);
    engine.shutdown().await;

    let (engine, id, _) = batch(&kit, Batch::Sum(vec![1, 2])).await;
    kit.advance(Duration::from_secs(60));
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert!(ended.last_error.expect("a reason").contains("the unit is timed_out and has no output"));
    engine.shutdown().await;
}

async fn a_batch_of_nothing_is_asked_all_the_same(kit: Kit) {
    let (engine, id, asked) = batch(&kit, Batch::Sum(vec![])).await;
    assert_eq!(asked.request.as_str(), "[]");
    engine.client().complete(asked.id, &0).await.expect("an answer");
    assert_eq!(engine.client().wait::<Batches>(id, SOON).await.expect("an output"), ["0"]);
    engine.shutdown().await;
}

/// Every way in which a unit cannot be asked, and what is told of it.
fn refused() -> Vec<(Dispatch, &'static str)> {
    let asking = |change: fn(&mut Ask)| {
        let mut dispatch = each(&["a"]);
        change(&mut dispatch.asks[0]);
        dispatch
    };
    let over = "is over the limit of";
    vec![
        (Dispatch { transport: String::new(), ..one("a") }, r#"the transport "" is refused: it is empty"#),
        (Dispatch { transport: "b\nank".to_owned(), ..one("a") }, "it holds control characters"),
        (each(&["a"; 4]), "`each` of 4 items is over the limit of 3"),
        (Dispatch { shape: Shape::ManyToOne, items: 3, ..one("a") }, over),
        (
            Dispatch { shape: Shape::ManyToMany, items: 3, ..one("a") },
            "a batch of 3 items is over the limit of 2",
        ),
        (Dispatch { in_flight: Some(0), ..each(&["a"]) }, "with 0 items in flight nothing is ever asked"),
        (Dispatch { quorum: Some(0), ..each(&["a"]) }, "a quorum of 0 waits for nothing"),
        (Dispatch { quorum: Some(1), ..one("a") }, "`quorum` and `in_flight` only fit `each`"),
        (Dispatch { in_flight: Some(1), ..one("a") }, "`quorum` and `in_flight` only fit `each`"),
        (asking(|ask| ask.request = Json::from(json!("x".repeat(2000)))), "the request is 2002 bytes"),
        (asking(|ask| ask.request = Json::from(json!("a\0b"))), "the request holds the character U+0000"),
        (asking(|ask| ask.idempotency_key.clear()), "the idempotency key \"\" is refused: it is empty"),
        (asking(|ask| ask.idempotency_key = "k".repeat(256)), "it is over 255 bytes"),
        (asking(|ask| ask.correlation_id = Some(String::new())), "the correlation id \"\" is refused"),
        (asking(|ask| ask.for_assignee = Some("a\0".to_owned())), "the assignee \"a\\0\" is refused"),
        (asking(|ask| ask.for_group = Some(String::new())), "the group \"\" is refused"),
        (Dispatch { at: at(""), ..one("a") }, "the step name \"\" is refused"),
        (Dispatch { at: at_with("s", json!("x".repeat(2000))), ..one("a") }, "the state is 2002 bytes"),
    ]
}

async fn what_could_not_be_asked_goes_to_the_handler(kit: Kit) {
    let limits = Limits { document_bytes_max: 1000, each_max: 3, items_max: 2, ..Limits::default() };
    let machine = Slow::new(|at, _| {
        let place = at.state.decode::<usize>("state").expect("a number");
        async move { Ok(Transition::Dispatch(refused().remove(place).0)) }
    });
    let builder = kit.engine().limits(limits).dyn_machine(machine.machine());
    let engine = builder.start().await.expect("the engine starts");
    for (place, (_, expected)) in refused().into_iter().enumerate() {
        let new = m_at(at_with("start", json!(place)));
        let id = engine.client().start_many([new]).await.expect("a start")[0].id();
        let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
        let told = ended.last_error.expect("a reason");
        assert!(told.starts_with("handled: ") && told.contains(expected), "{expected}: {told}");
        assert_eq!(kit.story(id).await, [EventKind::Created, EventKind::Failed]);
    }
    let asked = kit.store.interactions(InteractionFilter { limit: 1, ..InteractionFilter::default() }).await;
    assert!(asked.expect("a read").items.is_empty(), "nothing is stored of what was refused");
    engine.shutdown().await;
}

/// One more than twice what is resolved in one go.
const MANY: usize = 2 * 512 + 1;
const MINUTE: Duration = Duration::from_secs(60);

fn many_late(on_failure: OnFailure) -> Dispatch {
    Dispatch { item_timeout: Some(MINUTE), in_flight: None, on_failure, ..each(&["a"; MANY]) }
}

async fn more_late_items_than_fit_in_one_go_are_resolved_in_several(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, many_late(OnFailure::Report)).await;
    let asked = kit.store.items(unit(&kit, id).await.id, 0, 1).await.expect("a read").remove(0);
    assert_eq!(complete(&kit, asked.id, 1).await, Completed::Admitted { woke: false });
    kit.advance(MINUTE);
    for (round, left) in [(1, MANY - 1 - 512), (2, 0)] {
        assert_eq!(kit.due().await, 1, "round {round}");
        assert_eq!(pending(&kit).await.len(), left, "round {round}");
        if left > 0 {
            let row = kit.get(id).await;
            assert_eq!(
                (row.status, row.wake_at),
                (Status::AwaitingCompletion, Some(kit.now())),
                "there are more"
            );
            assert_eq!(row.barrier, Some(left as u32));
        }
    }
    assert_eq!(kit.due().await, 0);
    assert_eq!(kit.claim_one(worker).await.wake, Some(Wake::Unit));
    let closed = unit(&kit, id).await;
    assert_eq!((closed.status, closed.completed, closed.failed), (UnitStatus::Completed, 1, MANY as u32 - 1));
    let late = kit.story(id).await.into_iter().filter(|kind| *kind == EventKind::InteractionTimedOut).count();
    assert_eq!(late, MANY - 1, "each is told of once");
}

async fn a_unit_fails_fast_though_more_items_are_late_than_fit_in_one_go(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, many_late(OnFailure::Fail)).await;
    kit.advance(MINUTE);
    assert_eq!(kit.due().await, 1);
    assert_eq!(kit.claim_one(worker).await.wake, Some(Wake::Unit));
    let closed = unit(&kit, id).await;
    assert_eq!((closed.status, closed.failed), (UnitStatus::Failed, 1), "the first of them ends it");
    assert!(pending(&kit).await.is_empty(), "the others are let go");
}
