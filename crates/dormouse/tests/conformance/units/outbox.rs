//! The outbox: what is to be sent is handed out, to one at a time, until it is told of.

use std::time::Duration;

use dormouse::store::{Completed, Namespaces, Outbox, Refusal, SendOutcome, SendReport};
use dormouse::{Dispatch, EventKind, Interaction, InteractionStatus, UnitStatus};

use super::kit::*;
use crate::kit::*;

suite![
    what_is_to_be_sent_is_handed_out_once,
    what_nobody_told_of_is_handed_out_again_with_the_same_key,
    what_was_sent_is_dispatched_and_recorded,
    an_answer_may_come_before_the_send_is_told_of,
    what_is_to_be_sent_again_waits_for_its_moment,
    what_is_rejected_fails,
    an_older_send_says_nothing,
    items_are_handed_out_as_they_get_their_place,
    only_the_namespaces_asked_for_are_handed_out,
    nothing_is_handed_out_for_the_interaction_api,
    nothing_of_a_cancelled_instance_is_handed_out,
];

const LEASE: Duration = Duration::from_secs(30);

async fn what_is_to_be_sent_is_handed_out_once(kit: Kit) {
    let worker = kit.worker("w").await;
    parked(&kit, worker, by_bank(each(&["a", "b", "c"]))).await;
    assert!(take(&kit, "post", 10).await.taken.is_empty());
    let first = take(&kit, "bank", 2).await;
    let items: Vec<_> = first.taken.iter().map(|taken| (taken.item, taken.sends)).collect();
    assert_eq!(items, [(0, 1), (1, 1)]);
    assert_eq!(first.next, Some(kit.now()), "there is more");
    let rest = take(&kit, "bank", 2).await;
    assert_eq!(rest.taken.iter().map(|taken| taken.item).collect::<Vec<_>>(), [2]);
    assert_eq!(rest.next, Some(kit.now() + LEASE));
    assert!(take(&kit, "bank", 2).await.taken.is_empty());
}

async fn what_nobody_told_of_is_handed_out_again_with_the_same_key(kit: Kit) {
    let worker = kit.worker("w").await;
    parked(&kit, worker, by_bank(one("a"))).await;
    let first = take_one(&kit).await;
    kit.advance(LEASE);
    let second = take_one(&kit).await;
    assert_eq!((first.id, &first.idempotency_key), (second.id, &second.idempotency_key));
    assert_eq!((first.sends, second.sends), (1, 2));
}

async fn what_was_sent_is_dispatched_and_recorded(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, by_bank(one("a"))).await;
    let taken = take_one(&kit).await;
    tell(&kit, &taken, SendOutcome::Sent).await;
    let sent = items(&kit, id).await.remove(0);
    assert_eq!((sent.status, sent.dispatched_at), (InteractionStatus::Dispatched, Some(kit.now())));
    assert_eq!(kit.story(id).await[2..], [EventKind::InteractionDispatched]);
    kit.advance(LEASE);
    assert!(take(&kit, "bank", 10).await.taken.is_empty());
    assert_eq!(complete(&kit, taken.id, 7).await, Completed::Admitted { woke: true });
}

async fn an_answer_may_come_before_the_send_is_told_of(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, by_bank(one("a"))).await;
    let taken = take_one(&kit).await;
    assert_eq!(complete(&kit, taken.id, 7).await, Completed::Admitted { woke: true });
    let before = kit.get(id).await;
    for outcome in [SendOutcome::Sent, SendOutcome::Rejected("no".to_owned()), again(LEASE)] {
        tell(&kit, &taken, outcome).await;
    }
    assert_eq!(kit.get(id).await, before);
    assert_eq!(verdicts(&kit, id).await, ["completed 7"]);
    kit.advance(LEASE);
    assert!(take(&kit, "bank", 10).await.taken.is_empty());
}

async fn what_is_to_be_sent_again_waits_for_its_moment(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, by_bank(one("a"))).await;
    tell(&kit, &take_one(&kit).await, again(LEASE * 10)).await;
    assert_eq!(take(&kit, "bank", 10).await.next, Some(kit.now() + LEASE * 10));
    let waits = items(&kit, id).await.remove(0);
    assert_eq!((waits.status, waits.error.as_deref()), (InteractionStatus::Pending, Some("busy")));
    kit.advance(LEASE * 10);
    let taken = take_one(&kit).await;
    assert_eq!(taken.sends, 2);
    tell(&kit, &taken, SendOutcome::Sent).await;
    assert_eq!(items(&kit, id).await[0].error, None);
}

async fn what_is_rejected_fails(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, by_bank(one("a"))).await;
    let taken = take_one(&kit).await;
    tell(&kit, &taken, SendOutcome::Rejected("no such account".to_owned())).await;
    assert_eq!(unit(&kit, id).await.status, UnitStatus::Failed);
    assert_eq!(verdicts(&kit, id).await, ["failed no such account"]);
    assert_eq!(kit.claim_one(worker).await.id, id);
    assert_eq!(complete(&kit, taken.id, 1).await, Completed::Refused(Refusal::Late));
}

async fn an_older_send_says_nothing(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, by_bank(one("a"))).await;
    let old = take_one(&kit).await;
    kit.advance(LEASE);
    let new = take_one(&kit).await;
    tell(&kit, &old, SendOutcome::Rejected("no".to_owned())).await;
    tell(&kit, &old, again(Duration::ZERO)).await;
    assert!(take(&kit, "bank", 10).await.taken.is_empty());
    tell(&kit, &new, SendOutcome::Sent).await;
    assert_eq!(items(&kit, id).await[0].status, InteractionStatus::Dispatched);
}

async fn items_are_handed_out_as_they_get_their_place(kit: Kit) {
    let worker = kit.worker("w").await;
    parked(&kit, worker, by_bank(Dispatch { in_flight: Some(1), ..each(&["a", "b"]) })).await;
    let first = take_one(&kit).await;
    tell(&kit, &first, SendOutcome::Sent).await;
    assert_eq!(take(&kit, "bank", 10).await.next, None);
    complete(&kit, first.id, 0).await;
    assert_eq!(take_one(&kit).await.item, 1);
}

async fn only_the_namespaces_asked_for_are_handed_out(kit: Kit) {
    let worker = kit.worker("w").await;
    parked(&kit, worker, by_bank(one("a"))).await;
    let only = |name: &str| Namespaces::Only(vec![name.to_owned()]);
    let theirs = kit.store.outbox("bank".to_owned(), only("other"), 10, LEASE).await.expect("a take");
    assert!(theirs.taken.is_empty() && theirs.next.is_none());
    let ours = kit.store.outbox("bank".to_owned(), only("default"), 10, LEASE).await.expect("a take");
    assert_eq!(ours.taken.len(), 1);
}

async fn nothing_is_handed_out_for_the_interaction_api(kit: Kit) {
    let worker = kit.worker("w").await;
    parked(&kit, worker, Dispatch { in_flight: Some(1), ..each(&["a", "b"]) }).await;
    complete(&kit, pending(&kit).await[0].id, 0).await;
    assert!(take(&kit, dormouse::INTERACTION_API, 10).await.taken.is_empty());
}

async fn nothing_of_a_cancelled_instance_is_handed_out(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, by_bank(each(&["a", "b"]))).await;
    let taken = take(&kit, "bank", 1).await.taken.remove(0);
    kit.client().cancel(id).await.expect("a cancel");
    assert!(take(&kit, "bank", 10).await.taken.is_empty());
    tell(&kit, &taken, SendOutcome::Sent).await;
    assert_eq!(verdicts(&kit, id).await, ["cancelled", "cancelled"]);
    kit.story(id).await;
}

fn by_bank(dispatch: Dispatch) -> Dispatch {
    Dispatch { transport: "bank".to_owned(), ..dispatch }
}

fn again(after: Duration) -> SendOutcome {
    SendOutcome::Retry { after, error: "busy".to_owned() }
}

async fn take(kit: &Kit, transport: &str, rows_max: usize) -> Outbox {
    let taken = kit.store.outbox(transport.to_owned(), Namespaces::All, rows_max, LEASE).await;
    taken.expect("a take")
}

async fn take_one(kit: &Kit) -> Interaction {
    take(kit, "bank", 1).await.taken.pop().expect("something to send")
}

async fn tell(kit: &Kit, taken: &Interaction, outcome: SendOutcome) {
    let report = SendReport { id: taken.id, sends: taken.sends, outcome };
    kit.store.sent(vec![report]).await.expect("a report");
}
