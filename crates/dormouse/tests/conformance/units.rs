//! Units: what is opened, what resolves it, what closes it.

mod breaker;
mod completions;
mod deadlines;
pub(crate) mod kit;
mod limited;
mod limited_engines;
mod lives;
mod outbox;
mod people;
mod projector;
#[cfg(feature = "schema")]
mod schema;
mod sending;
mod shapes;

use std::time::Duration;

use dormouse::store::{Completed, Receipt, Refusal};
use dormouse::{
    Dispatch, EventKind, InteractionStatus, OnFailure, Shape, Status, Transition, UnitStatus, Wake,
};

use self::kit::*;
use crate::kit::*;

suite![
    a_dispatch_opens_the_unit_and_parks_in_one_commit,
    a_stale_dispatch_opens_nothing,
    a_dispatch_whose_answer_was_lost_opens_no_second_unit,
    a_dispatch_consumes_the_signals_its_step_received,
    the_answer_wakes_the_step_with_its_output,
    a_failed_answer_fails_a_unit_of_one,
    a_unit_of_nothing_runs_on_at_once,
    items_complete_in_any_order_and_are_seen_in_item_order,
    at_most_so_many_items_are_in_flight,
    an_item_without_a_place_in_flight_cannot_be_answered,
    a_quorum_lets_the_others_go,
    a_quorum_out_of_reach_fails_the_unit,
    an_item_that_fails_may_fail_the_unit,
    failed_and_late_items_are_reported_beside_the_others,
    the_units_deadline_wakes_it_with_what_there_is,
    items_are_late_one_by_one_from_when_they_were_opened,
    a_late_item_may_fail_the_unit,
    a_unit_is_seen_until_its_instance_progresses,
    a_replayed_step_sees_its_unit_again,
    each_dispatch_has_a_unit_of_its_own,
    a_list_answers_a_unit_that_asks_for_one,
    six_thousand_items_fit_in_one_unit,
];

async fn a_dispatch_opens_the_unit_and_parks_in_one_commit(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, each(&["a", "b"])).await;
    let row = kit.get(id).await;
    assert_eq!((row.status, row.barrier, row.round), (Status::AwaitingCompletion, Some(2), 1));
    assert_eq!((row.step.as_str(), row.attempt, row.wake_at), ("answered", 0, None));
    let unit = unit(&kit, id).await;
    assert_eq!((unit.status, unit.shape, unit.interactions), (UnitStatus::Open, Shape::Each, 2));
    let items = items(&kit, id).await;
    let asked: Vec<_> = items.iter().map(|item| item.request.as_str()).collect();
    assert_eq!(asked, [r#""a""#, r#""b""#]);
    for item in &items {
        assert_eq!((item.status, item.machine.as_str()), (InteractionStatus::Pending, "m"));
        assert_eq!((item.step.as_str(), item.namespace.as_str()), ("answered", "default"));
        assert_eq!(item.opened_at, Some(kit.now()));
    }
    assert_eq!(kit.story(id).await, [EventKind::Created, EventKind::UnitOpened]);
    assert!(kit.claim(worker, 1).await.is_empty(), "it is parked");
}

async fn a_stale_dispatch_opens_nothing(kit: Kit) {
    let slow = kit.worker_with_lease("slow", Duration::from_secs(1)).await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(slow).await;
    kit.advance(Duration::from_secs(2));
    assert_eq!(kit.reap().await, 1);
    let late = commit(&claimed, Transition::Dispatch(one("a")));
    assert!(matches!(kit.commit(slow, late).await, Receipt::Stale));
    assert_eq!(kit.store.unit(id).await.expect("a read"), None);
    assert!(pending(&kit).await.is_empty());
}

async fn a_dispatch_whose_answer_was_lost_opens_no_second_unit(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let dispatching = commit(&claimed, Transition::Dispatch(each(&["a", "b"])));
    assert!(matches!(kit.commit(worker, dispatching.clone()).await, Receipt::Released));
    assert!(matches!(kit.commit(worker, dispatching).await, Receipt::Stale));
    assert_eq!(pending(&kit).await.len(), 2);
}

async fn a_dispatch_consumes_the_signals_its_step_received(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "ask"))).await;
    kit.deliver(id, signal("go")).await;
    kit.deliver(id, signal("other")).await;
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, Transition::Dispatch(one("a")))).await;
    let left = kit.client().inbox(id).await.expect("a read");
    assert_eq!(left.iter().map(|signal| signal.name.as_str()).collect::<Vec<_>>(), ["other"]);
}

async fn the_answer_wakes_the_step_with_its_output(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    let item = items(&kit, id).await.remove(0);
    assert_eq!(complete(&kit, item.id, 7).await, Completed::Admitted { woke: true });
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake, woken.attempt), (id, Some(Wake::Unit), 0));
    assert_eq!(woken.at.step, "answered");
    assert_eq!(verdicts(&kit, id).await, ["completed 7"]);
    assert_eq!(unit(&kit, id).await.status, UnitStatus::Completed);
    let story = kit.story(id).await;
    assert_eq!(story[2..], [EventKind::InteractionCompleted, EventKind::UnitCompleted]);
}

async fn a_failed_answer_fails_a_unit_of_one(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    let item = items(&kit, id).await.remove(0);
    assert_eq!(fail_item(&kit, item.id, "no").await, Completed::Admitted { woke: true });
    assert_eq!(kit.claim_one(worker).await.wake, Some(Wake::Unit));
    assert_eq!(verdicts(&kit, id).await, ["failed no"]);
    assert_eq!(unit(&kit, id).await.status, UnitStatus::Failed);
    assert_eq!(kit.story(id).await[2..], [EventKind::InteractionFailed, EventKind::UnitFailed]);
}

async fn a_unit_of_nothing_runs_on_at_once(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, each(&[])).await;
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake), (id, Some(Wake::Unit)));
    assert_eq!(unit(&kit, id).await.status, UnitStatus::Completed);
    assert!(verdicts(&kit, id).await.is_empty());
    assert_eq!(kit.story(id).await[1..], [EventKind::UnitOpened, EventKind::UnitCompleted]);
}

async fn items_complete_in_any_order_and_are_seen_in_item_order(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, each(&["a", "b", "c"])).await;
    let items = items(&kit, id).await;
    for (place, woke) in [(2, false), (0, false), (1, true)] {
        assert_eq!(complete(&kit, items[place].id, place).await, Completed::Admitted { woke });
    }
    assert_eq!(kit.claim(worker, 10).await.len(), 1);
    assert_eq!(verdicts(&kit, id).await, ["completed 0", "completed 1", "completed 2"]);
    kit.story(id).await;
}

async fn at_most_so_many_items_are_in_flight(kit: Kit) {
    let worker = kit.worker("w").await;
    let dispatch = Dispatch { in_flight: Some(2), ..each(&["a", "b", "c", "d"]) };
    let id = parked(&kit, worker, dispatch).await;
    let mut seen = Vec::new();
    while let Some(first) = pending(&kit).await.first().cloned() {
        assert!(pending(&kit).await.len() <= 2);
        assert_eq!(kit.get(id).await.barrier, Some(4 - seen.len() as u32));
        seen.push(first.item);
        complete(&kit, first.id, first.item).await;
    }
    assert_eq!(seen, [0, 1, 2, 3]);
    assert_eq!(kit.claim_one(worker).await.id, id);
}

async fn an_item_without_a_place_in_flight_cannot_be_answered(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, Dispatch { in_flight: Some(1), ..each(&["a", "b"]) }).await;
    let items = items(&kit, id).await;
    assert_eq!(complete(&kit, items[1].id, 1).await, Completed::Refused(Refusal::Unknown));
    complete(&kit, items[0].id, 0).await;
    assert_eq!(complete(&kit, items[1].id, 1).await, Completed::Admitted { woke: true });
}

async fn a_quorum_lets_the_others_go(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, Dispatch { quorum: Some(2), ..each(&["a", "b", "c"]) }).await;
    assert_eq!(kit.get(id).await.barrier, Some(2));
    let items = items(&kit, id).await;
    complete(&kit, items[2].id, 2).await;
    assert_eq!(complete(&kit, items[0].id, 0).await, Completed::Admitted { woke: true });
    assert_eq!(complete(&kit, items[1].id, 1).await, Completed::Refused(Refusal::Late));
    assert_eq!(verdicts(&kit, id).await, ["completed 0", "cancelled", "completed 2"]);
    assert_eq!(unit(&kit, id).await.status, UnitStatus::Completed);
    assert_eq!(kit.claim(worker, 10).await.len(), 1);
}

async fn a_quorum_out_of_reach_fails_the_unit(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, Dispatch { quorum: Some(2), ..each(&["a", "b", "c"]) }).await;
    let items = items(&kit, id).await;
    assert_eq!(fail_item(&kit, items[0].id, "no").await, Completed::Admitted { woke: false });
    assert_eq!(fail_item(&kit, items[1].id, "no").await, Completed::Admitted { woke: true });
    assert_eq!(unit(&kit, id).await.status, UnitStatus::Failed);
    assert_eq!(verdicts(&kit, id).await, ["failed no", "failed no", "cancelled"]);
}

async fn an_item_that_fails_may_fail_the_unit(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, Dispatch { on_failure: OnFailure::Fail, ..each(&["a", "b"]) }).await;
    let items = items(&kit, id).await;
    assert_eq!(fail_item(&kit, items[1].id, "no").await, Completed::Admitted { woke: true });
    assert_eq!(unit(&kit, id).await.status, UnitStatus::Failed);
    assert_eq!(verdicts(&kit, id).await, ["cancelled", "failed no"]);
}

async fn failed_and_late_items_are_reported_beside_the_others(kit: Kit) {
    let worker = kit.worker("w").await;
    let minute = Duration::from_secs(60);
    let id = parked(&kit, worker, Dispatch { item_timeout: Some(minute), ..each(&["a", "b", "c"]) }).await;
    let items = items(&kit, id).await;
    complete(&kit, items[2].id, 2).await;
    fail_item(&kit, items[0].id, "no").await;
    kit.advance(minute);
    assert_eq!(kit.due().await, 1);
    assert_eq!(kit.claim_one(worker).await.wake, Some(Wake::Unit));
    assert_eq!(unit(&kit, id).await.status, UnitStatus::Completed);
    assert_eq!(verdicts(&kit, id).await, ["failed no", "timed_out", "completed 2"]);
    let story = kit.story(id).await;
    assert_eq!(story[4..], [EventKind::InteractionTimedOut, EventKind::UnitCompleted]);
}

async fn the_units_deadline_wakes_it_with_what_there_is(kit: Kit) {
    let worker = kit.worker("w").await;
    let hour = Duration::from_secs(3600);
    let id = parked(&kit, worker, Dispatch { timeout: Some(hour.into()), ..each(&["a", "b"]) }).await;
    let items = items(&kit, id).await;
    complete(&kit, items[1].id, 1).await;
    kit.advance(hour);
    assert_eq!(kit.due().await, 1);
    assert_eq!(complete(&kit, items[0].id, 0).await, Completed::Refused(Refusal::Late));
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake, woken.attempt), (id, Some(Wake::Timeout), 0));
    assert_eq!(unit(&kit, id).await.status, UnitStatus::TimedOut);
    assert_eq!(verdicts(&kit, id).await, ["timed_out", "completed 1"]);
    assert_eq!(kit.story(id).await.last(), Some(&EventKind::UnitTimedOut));
}

async fn items_are_late_one_by_one_from_when_they_were_opened(kit: Kit) {
    let worker = kit.worker("w").await;
    let minute = Duration::from_secs(60);
    let dispatch = Dispatch { item_timeout: Some(minute), in_flight: Some(1), ..each(&["a", "b", "c"]) };
    let id = parked(&kit, worker, dispatch).await;
    kit.advance(minute / 2);
    let first = items(&kit, id).await.remove(0);
    complete(&kit, first.id, 0).await;
    kit.advance(minute / 2);
    assert_eq!(kit.due().await, 1, "it was armed for the first item");
    let row = kit.get(id).await;
    assert_eq!((row.status, row.wake_at), (Status::AwaitingCompletion, Some(kit.now() + minute / 2)));
    kit.advance(minute / 2);
    kit.due().await;
    let open: Vec<_> = pending(&kit).await.iter().map(|item| item.item).collect();
    assert_eq!((open, kit.get(id).await.wake_at), (vec![2], Some(kit.now() + minute)));
    kit.advance(minute);
    kit.due().await;
    assert_eq!(verdicts(&kit, id).await, ["completed 0", "timed_out", "timed_out"]);
    assert_eq!(kit.claim_one(worker).await.wake, Some(Wake::Unit));
    kit.story(id).await;
}

async fn a_late_item_may_fail_the_unit(kit: Kit) {
    let worker = kit.worker("w").await;
    let minute = Duration::from_secs(60);
    let id = parked(&kit, worker, Dispatch { item_timeout: Some(minute), ..one("a") }).await;
    kit.advance(minute);
    kit.due().await;
    assert_eq!(kit.claim_one(worker).await.wake, Some(Wake::Unit));
    assert_eq!(unit(&kit, id).await.status, UnitStatus::Failed);
    assert_eq!(verdicts(&kit, id).await, ["timed_out"]);
}

async fn a_unit_is_seen_until_its_instance_progresses(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    complete(&kit, items(&kit, id).await[0].id, 7).await;
    let woken = kit.claim_one(worker).await;
    assert!(kit.store.unit(id).await.expect("a read").is_some());
    kit.commit(worker, commit(&woken, next("on"))).await;
    assert_eq!(kit.store.unit(id).await.expect("a read"), None);
    assert_eq!(kit.get(id).await.barrier, None);
}

async fn a_replayed_step_sees_its_unit_again(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    complete(&kit, items(&kit, id).await[0].id, 7).await;
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, replay("answered", Duration::ZERO))).await;
    let again = kit.claim_one(worker).await;
    assert_eq!((again.wake, again.attempt), (Some(Wake::Unit), 1));
    assert_eq!(verdicts(&kit, id).await, ["completed 7"]);
}

async fn each_dispatch_has_a_unit_of_its_own(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    let first = items(&kit, id).await.remove(0);
    complete(&kit, first.id, 1).await;
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, Transition::Dispatch(one("b")))).await;
    let second = items(&kit, id).await.remove(0);
    assert_eq!((second.request.as_str(), unit(&kit, id).await.round), (r#""b""#, 2));
    assert!(matches!(complete(&kit, first.id, 9).await, Completed::Repeat(_)), "the first is closed");
    assert_eq!(kit.status(id).await, Status::AwaitingCompletion);
    complete(&kit, second.id, 2).await;
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, Transition::Spawn(spawn(vec![m()], "join")))).await;
    assert_eq!(kit.store.unit(id).await.expect("a read"), None, "a barrier of children is no unit");
}

async fn a_list_answers_a_unit_that_asks_for_one(kit: Kit) {
    let worker = kit.worker("w").await;
    let dispatch = Dispatch { shape: Shape::OneToMany, outputs_max: 2, ..one("a") };
    let id = parked(&kit, worker, dispatch).await;
    let item = items(&kit, id).await.remove(0);
    for wrong in [serde_json::json!(7), serde_json::json!([1, 2, 3]), serde_json::json!({ "a": [] })] {
        assert_eq!(complete(&kit, item.id, wrong).await, Completed::Refused(Refusal::NotAList));
    }
    assert_eq!(complete(&kit, item.id, [1, 2]).await, Completed::Admitted { woke: true });
    assert_eq!(verdicts(&kit, id).await, ["completed [1,2]"]);
}

async fn six_thousand_items_fit_in_one_unit(kit: Kit) {
    let worker = kit.worker("w").await;
    let names: Vec<String> = (0..6_000).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let dispatch = Dispatch { in_flight: Some(3_000), ..each(&names) };
    let id = parked(&kit, worker, dispatch).await;
    for _ in 0..2 {
        let answers = pending(&kit).await.into_iter().map(|item| completion(item.id, item.item));
        let completed = kit.store.complete(answers.collect()).await.expect("a completion").value;
        assert!(completed.iter().all(|completed| matches!(completed, Completed::Admitted { .. })));
    }
    assert_eq!(kit.claim_one(worker).await.id, id);
    let all = kit.store.items(unit(&kit, id).await.id, 0, 10_000).await.expect("a read");
    assert!(
        all.iter()
            .enumerate()
            .all(|(n, item)| item.output == Some(dormouse::Json::from(serde_json::json!(n))))
    );
    assert_eq!(all.len(), 6_000);
}
