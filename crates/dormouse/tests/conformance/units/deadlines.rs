//! Deadlines of interactions: the nearer of their own and their unit's, and final by the store's time.

use std::time::Duration;

use dormouse::store::{Assigned, Completed, Completion, Proof, Refusal, Which};
use dormouse::{Ask, Dispatch, Interaction, InteractionId, Status, UnitStatus, Wake};

use super::kit::*;
use crate::kit::*;

suite![
    an_answer_after_its_deadline_is_late_though_no_clock_has_looked,
    an_answer_just_before_its_deadline_is_admitted,
    a_repeat_after_the_deadline_gets_the_first_answer_back,
    a_late_answer_changes_nothing_and_leaves_the_wake_to_the_clock,
    an_interaction_knows_the_nearer_of_its_own_and_its_units_deadline,
    items_that_open_later_count_from_then_and_end_with_their_unit,
    what_is_late_can_not_be_claimed,
    a_correlation_id_means_the_interaction_that_can_still_be_answered,
];

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Units whose items are late in an hour: with their unit, by themselves, and by the nearer of both.
fn late_in_an_hour() -> [Dispatch; 4] {
    let unit_of = |timeout: Option<Duration>, item_timeout: Option<Duration>| {
        let dispatch = each(&["a", "b"]);
        let asks =
            dispatch.asks.iter().map(|ask| Ask { correlation_id: Some("late".to_owned()), ..ask.clone() });
        let asks = asks.take(1).chain(dispatch.asks.iter().skip(1).cloned()).collect();
        Dispatch { asks, timeout: timeout.map(Into::into), item_timeout, ..dispatch }
    };
    [
        unit_of(Some(HOUR), None),
        unit_of(None, Some(HOUR)),
        unit_of(Some(HOUR), Some(2 * HOUR)),
        unit_of(Some(2 * HOUR), Some(HOUR)),
    ]
}

async fn an_answer_after_its_deadline_is_late_though_no_clock_has_looked(kit: Kit) {
    let worker = kit.worker("w").await;
    for dispatch in late_in_an_hour() {
        let id = parked(&kit, worker, dispatch).await;
        let asked = items(&kit, id).await.remove(0);
        kit.advance(HOUR);
        let by_id = completion(asked.id, 1);
        let by_correlation = completion(Which::Correlation("late".to_owned()), 1);
        let failing = Completion { result: Err("no".to_owned()), ..completion(asked.id, ()) };
        // Good by itself, and no longer good by itself.
        let good = Completion { proof: Some(proof(&asked, kit.now() + HOUR)), ..completion(asked.id, 1) };
        let old = Completion { proof: Some(proof(&asked, kit.now() - MINUTE)), ..completion(asked.id, 1) };
        let answers = vec![by_id, by_correlation, failing, good, old];
        for answer_alone in &answers {
            let told = answer(&kit, answer_alone.clone()).await;
            assert_eq!(told, Completed::Refused(Refusal::Late), "{answer_alone:?}");
        }
        let told = kit.store.complete(answers).await.expect("a batch").value;
        assert_eq!(told, vec![Completed::Refused(Refusal::Late); 5], "in a batch, too");
        kit.client().cancel(id).await.expect("a cancel");
    }
}

async fn an_answer_just_before_its_deadline_is_admitted(kit: Kit) {
    let worker = kit.worker("w").await;
    for dispatch in late_in_an_hour() {
        let id = parked(&kit, worker, dispatch).await;
        let asked = items(&kit, id).await;
        kit.advance(HOUR - Duration::from_micros(1));
        let named = completion(Which::Correlation("late".to_owned()), 1);
        assert_eq!(answer(&kit, named).await, Completed::Admitted { woke: false });
        let proven = proof(&asked[1], kit.now() + HOUR);
        let by_token = Completion { proof: Some(proven), ..completion(asked[1].id, 2) };
        assert_eq!(answer(&kit, by_token).await, Completed::Admitted { woke: true });
        assert_eq!(kit.claim_one(worker).await.wake, Some(Wake::Unit));
    }
}

async fn a_repeat_after_the_deadline_gets_the_first_answer_back(kit: Kit) {
    let worker = kit.worker("w").await;
    let [dispatch, ..] = late_in_an_hour();
    let id = parked(&kit, worker, dispatch).await;
    let asked = items(&kit, id).await.remove(0);
    complete(&kit, asked.id, 1).await;
    kit.advance(2 * HOUR);
    assert!(matches!(complete(&kit, asked.id, 2).await, Completed::Repeat(Ok(_))));
}

async fn a_late_answer_changes_nothing_and_leaves_the_wake_to_the_clock(kit: Kit) {
    let worker = kit.worker("w").await;
    for dispatch in late_in_an_hour() {
        let of_unit = dispatch.timeout == Some(HOUR.into());
        let id = parked(&kit, worker, dispatch).await;
        let asked = items(&kit, id).await.remove(0);
        kit.advance(HOUR);
        let before = (kit.get(id).await, items(&kit, id).await);
        complete(&kit, asked.id, 1).await;
        assert_eq!((kit.get(id).await, items(&kit, id).await), before);
        assert_eq!((before.0.status, before.0.wake_at), (Status::AwaitingCompletion, Some(kit.now())));
        assert_eq!(kit.due().await, 1);
        let (wake, status) = match of_unit {
            true => (Wake::Timeout, UnitStatus::TimedOut),
            false => (Wake::Unit, UnitStatus::Completed),
        };
        assert_eq!(kit.claim_one(worker).await.wake, Some(wake));
        assert_eq!(unit(&kit, id).await.status, status);
        assert_eq!(verdicts(&kit, id).await, ["timed_out", "timed_out"]);
    }
}

async fn an_interaction_knows_the_nearer_of_its_own_and_its_units_deadline(kit: Kit) {
    let worker = kit.worker("w").await;
    for dispatch in late_in_an_hour() {
        let id = parked(&kit, worker, dispatch).await;
        let asked = items(&kit, id).await;
        assert!(asked.iter().all(|asked| asked.deadline == Some(kit.now() + HOUR)), "{asked:?}");
        assert_eq!(kit.get(id).await.wake_at, Some(kit.now() + HOUR));
        let listed = kit.client().interaction(asked[0].id).await.expect("a read").expect("it is there");
        assert_eq!(listed.deadline, Some(kit.now() + HOUR));
    }
    let id = parked(&kit, worker, one("a")).await;
    assert_eq!(items(&kit, id).await[0].deadline, None);
}

async fn items_that_open_later_count_from_then_and_end_with_their_unit(kit: Kit) {
    let worker = kit.worker("w").await;
    let dispatch = Dispatch {
        timeout: Some((HOUR + MINUTE).into()),
        item_timeout: Some(HOUR),
        in_flight: Some(1),
        ..each(&["a", "b", "c"])
    };
    let opened_at = kit.now();
    let id = parked(&kit, worker, dispatch).await;
    let deadline = async |item: usize| items(&kit, id).await[item].deadline;
    assert_eq!((deadline(0).await, deadline(1).await), (Some(opened_at + HOUR), None), "b is not asked yet");
    kit.advance(MINUTE / 2);
    complete(&kit, items(&kit, id).await[0].id, 0).await;
    assert_eq!(deadline(1).await, Some(opened_at + MINUTE / 2 + HOUR), "its own is nearer");
    kit.advance(MINUTE);
    complete(&kit, items(&kit, id).await[1].id, 1).await;
    assert_eq!(deadline(2).await, Some(opened_at + HOUR + MINUTE), "its unit's is nearer");
    kit.advance(HOUR - MINUTE / 2);
    let last = items(&kit, id).await[2].id;
    assert_eq!(complete(&kit, last, 2).await, Completed::Refused(Refusal::Late));
    while kit.status(id).await != Status::Runnable {
        assert_eq!(kit.due().await, 1, "its clock was armed for the first of them");
    }
    assert_eq!(unit(&kit, id).await.status, UnitStatus::TimedOut);
    assert_eq!(verdicts(&kit, id).await, ["completed 0", "completed 1", "timed_out"]);
}

async fn what_is_late_can_not_be_claimed(kit: Kit) {
    let worker = kit.worker("w").await;
    for dispatch in late_in_an_hour() {
        let id = parked(&kit, worker, dispatch).await;
        let asked = items(&kit, id).await.remove(0).id;
        assert!(matches!(claim(&kit, asked, "ann").await, Assigned::Until(_)));
        kit.advance(HOUR);
        assert_eq!(claim(&kit, asked, "ann").await, Assigned::NotOpen);
        kit.client().cancel(id).await.expect("a cancel");
    }
}

async fn a_correlation_id_means_the_interaction_that_can_still_be_answered(kit: Kit) {
    let worker = kit.worker("w").await;
    let [dispatch, ..] = late_in_an_hour();
    let late = parked(&kit, worker, dispatch.clone()).await;
    kit.advance(MINUTE);
    let open = parked(&kit, worker, dispatch).await;
    let named = || completion(Which::Correlation("late".to_owned()), 1);
    assert_eq!(answer(&kit, named()).await, Completed::Refused(Refusal::Ambiguous));
    kit.advance(HOUR - MINUTE);
    let found = kit.client().interaction(Which::Correlation("late".to_owned())).await.expect("a read");
    assert_eq!(found.expect("one of both").instance, open);
    assert_eq!(answer(&kit, named()).await, Completed::Admitted { woke: false });
    assert_eq!(verdicts(&kit, late).await, ["pending", "pending"], "it is the clock's to close");
}

fn proof(asked: &Interaction, expires_at: dormouse::jiff::Timestamp) -> Proof {
    Proof { instance: asked.instance, unit: asked.unit, sends: 0, expires_at }
}

async fn claim(kit: &Kit, id: InteractionId, who: &str) -> Assigned {
    kit.store.assign("default".to_owned(), id, who.to_owned(), MINUTE).await.expect("a claim")
}
