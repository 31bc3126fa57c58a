//! Completions: admitted once, or refused with the reason.

use std::time::Duration;

use dormouse::store::{Assigned, Completed, Completion, InteractionFilter, Proof, Refusal, Which};
use dormouse::{
    Ask, Dispatch, InstanceId, Interaction, InteractionId, InteractionStatus, Json, Status, UnitId,
};

use super::kit::*;
use crate::kit::*;

suite![
    a_repeated_answer_gets_the_first_one_back,
    answers_at_once_admit_one,
    an_unknown_interaction_is_refused,
    another_namespaces_interaction_is_refused,
    an_answer_after_cancel_is_refused,
    an_answer_may_name_its_correlation_id,
    a_correlation_id_of_several_open_interactions_is_refused,
    a_proof_that_does_not_fit_or_is_too_old_is_refused,
    a_proof_reads_back_its_holders_own_answer_alone_and_while_it_is_good,
    a_batch_says_for_each_what_became_of_it,
    a_claimed_interaction_is_answered_by_its_claimant,
    a_claim_runs_out_and_can_be_given_back,
    interactions_are_listed_oldest_first_in_pages,
    interactions_are_listed_by_what_they_are,
    interactions_are_counted_with_the_oldest_of_each,
];

async fn a_repeated_answer_gets_the_first_one_back(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, each(&["a", "b"])).await;
    let items = items(&kit, id).await;
    complete(&kit, items[0].id, 1).await;
    let seq = kit.get(id).await.seq;
    let first = Ok(Json::from(serde_json::json!(1)));
    assert_eq!(complete(&kit, items[0].id, 2).await, Completed::Repeat(first.clone()));
    assert_eq!(fail_item(&kit, items[0].id, "no").await, Completed::Repeat(first.clone()));
    assert_eq!(kit.get(id).await.seq, seq, "a repeat changes nothing");
    fail_item(&kit, items[1].id, "no").await;
    assert_eq!(complete(&kit, items[1].id, 2).await, Completed::Repeat(Err("no".to_owned())));
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, done())).await;
    assert_eq!(complete(&kit, items[0].id, 2).await, Completed::Repeat(first), "after the end, too");
}

async fn answers_at_once_admit_one(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, each(&["a", "b"])).await;
    let items = items(&kit, id).await;
    let answers = (0..20).map(|n| complete(&kit, items[n % 2].id, n)).collect::<Vec<_>>();
    let mut admitted = 0;
    let mut woke = 0;
    for answer in join_all(answers).await {
        match answer {
            Completed::Admitted { woke: wakes } => {
                admitted += 1;
                woke += usize::from(wakes);
            }
            other => assert!(matches!(other, Completed::Repeat(_)), "{other:?}"),
        }
    }
    assert_eq!((admitted, woke), (2, 1));
    assert_eq!(kit.claim(worker, 10).await.len(), 1);
    kit.story(id).await;
}

async fn an_unknown_interaction_is_refused(kit: Kit) {
    assert_eq!(complete(&kit, InteractionId(4711), 1).await, Completed::Refused(Refusal::Unknown));
    let unheard = Which::Correlation("unheard of".to_owned());
    assert_eq!(answer(&kit, completion(unheard, 1)).await, Completed::Refused(Refusal::Unknown));
}

async fn another_namespaces_interaction_is_refused(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    let item = items(&kit, id).await.remove(0).id;
    let foreign = Completion { namespace: "other".to_owned(), ..completion(item, 1) };
    assert_eq!(answer(&kit, foreign).await, Completed::Refused(Refusal::OtherNamespace));
    assert_eq!(kit.store.interaction("other".to_owned(), item.into()).await.expect("a read"), None);
    assert_eq!(kit.status(id).await, Status::AwaitingCompletion);
}

async fn an_answer_after_cancel_is_refused(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    let item = items(&kit, id).await.remove(0).id;
    kit.client().cancel(id).await.expect("a cancel");
    assert_eq!(complete(&kit, item, 1).await, Completed::Refused(Refusal::Cancelled));
}

async fn an_answer_may_name_its_correlation_id(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, correlated("order-7")).await;
    let named = || completion(Which::Correlation("order-7".to_owned()), 1);
    let found = kit.store.interaction("default".to_owned(), Which::Correlation("order-7".to_owned())).await;
    assert_eq!(found.expect("a read").map(|found| found.instance), Some(id));
    let foreign = Completion { namespace: "other".to_owned(), ..named() };
    assert_eq!(answer(&kit, foreign).await, Completed::Refused(Refusal::Unknown));
    assert_eq!(answer(&kit, named()).await, Completed::Admitted { woke: true });
    assert!(matches!(answer(&kit, named()).await, Completed::Repeat(_)));
    assert_eq!(kit.claim_one(worker).await.id, id);
    // Used again, it means the one that is open.
    parked(&kit, worker, correlated("order-7")).await;
    assert_eq!(answer(&kit, named()).await, Completed::Admitted { woke: true });
}

async fn a_correlation_id_of_several_open_interactions_is_refused(kit: Kit) {
    let worker = kit.worker("w").await;
    parked(&kit, worker, correlated("twice")).await;
    parked(&kit, worker, correlated("twice")).await;
    let ambiguous = completion(Which::Correlation("twice".to_owned()), 1);
    assert_eq!(answer(&kit, ambiguous).await, Completed::Refused(Refusal::Ambiguous));
}

async fn a_proof_that_does_not_fit_or_is_too_old_is_refused(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    let item = items(&kit, id).await.remove(0);
    let expires_at = kit.now() + HOUR;
    let right = Proof { instance: id, unit: item.unit, sends: 0, expires_at };
    let wrong = [
        Proof { instance: InstanceId(id.0 + 1), ..right },
        Proof { unit: UnitId(item.unit.0 + 1), ..right },
        Proof { sends: 1, ..right },
    ];
    for proof in wrong {
        let forged = Completion { proof: Some(proof), ..completion(item.id, 1) };
        assert_eq!(answer(&kit, forged).await, Completed::Refused(Refusal::Forged));
    }
    kit.advance(HOUR + Duration::from_secs(1));
    let old = Completion { proof: Some(right), ..completion(item.id, 1) };
    assert_eq!(answer(&kit, old).await, Completed::Refused(Refusal::Expired));
    kit.turn_back(Duration::from_secs(1));
    let proven = Completion { proof: Some(right), ..completion(item.id, 1) };
    assert_eq!(answer(&kit, proven).await, Completed::Admitted { woke: true });
}

async fn a_proof_reads_back_its_holders_own_answer_alone_and_while_it_is_good(kit: Kit) {
    let worker = kit.worker("w").await;
    let by = |who: &str, id, proof| Completion { by: Some(who.to_owned()), proof, ..completion(id, 1) };
    let proof_of = |item: &Interaction| Proof {
        instance: item.instance,
        unit: item.unit,
        sends: 0,
        expires_at: kit.now() + HOUR,
    };
    let theirs = items(&kit, parked(&kit, worker, one("a")).await).await.remove(0);
    let own = items(&kit, parked(&kit, worker, one("b")).await).await.remove(0);
    let (of_theirs, of_own) = (Some(proof_of(&theirs)), Some(proof_of(&own)));
    assert_eq!(answer(&kit, by("an operator", theirs.id, None)).await, Completed::Admitted { woke: true });
    assert_eq!(answer(&kit, by("a token", own.id, of_own)).await, Completed::Admitted { woke: true });
    let repeat = Completed::Repeat(Ok(Json::from(serde_json::json!(1))));
    let unused = by("a token", theirs.id, of_theirs);
    assert_eq!(answer(&kit, unused.clone()).await, Completed::Refused(Refusal::Answered));
    assert_eq!(answer(&kit, by("a token", own.id, of_own)).await, repeat);
    // Whoever needs no token is told who was first.
    assert_eq!(answer(&kit, by("another operator", own.id, None)).await, repeat);
    kit.advance(HOUR + Duration::from_secs(1));
    assert_eq!(answer(&kit, unused).await, Completed::Refused(Refusal::Expired));
    assert_eq!(answer(&kit, by("a token", own.id, of_own)).await, Completed::Refused(Refusal::Expired));
}

async fn a_batch_says_for_each_what_became_of_it(kit: Kit) {
    let worker = kit.worker("w").await;
    let first = parked(&kit, worker, each(&["a", "b"])).await;
    let second = parked(&kit, worker, one("c")).await;
    let (ab, c) = (items(&kit, first).await, items(&kit, second).await.remove(0));
    let batch = vec![
        completion(c.id, 3),
        completion(ab[0].id, 1),
        completion(ab[0].id, 9),
        completion(InteractionId(4711), 0),
        completion(ab[1].id, 2),
    ];
    let completed = kit.store.complete(batch).await.expect("a completion").value;
    let repeat = Completed::Repeat(Ok(Json::from(serde_json::json!(1))));
    assert_eq!(
        completed,
        [
            Completed::Admitted { woke: true },
            Completed::Admitted { woke: false },
            repeat,
            Completed::Refused(Refusal::Unknown),
            Completed::Admitted { woke: true },
        ]
    );
    assert_eq!(kit.claim(worker, 10).await.len(), 2);
    kit.story(first).await;
}

async fn a_claimed_interaction_is_answered_by_its_claimant(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    let item = items(&kit, id).await.remove(0).id;
    let until = kit.now() + HOUR;
    assert_eq!(assign(&kit, item, "ann", HOUR).await, Assigned::Until(until));
    assert_eq!(assign(&kit, item, "bob", HOUR).await, Assigned::Taken { by: "ann".to_owned(), until });
    assert_eq!(assign(&kit, item, "ann", HOUR).await, Assigned::Until(until));
    assert_eq!(complete(&kit, item, 1).await, Completed::Refused(Refusal::Claimed));
    let by = |who: &str| Completion { assignee: Some(who.to_owned()), ..completion(item, 1) };
    assert_eq!(answer(&kit, by("bob")).await, Completed::Refused(Refusal::Claimed));
    assert_eq!(answer(&kit, by("ann")).await, Completed::Admitted { woke: true });
    assert_eq!(assign(&kit, item, "bob", HOUR).await, Assigned::NotOpen);
    assert_eq!(assign(&kit, InteractionId(4711), "bob", HOUR).await, Assigned::NotOpen);
}

async fn a_claim_runs_out_and_can_be_given_back(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, one("a")).await;
    let item = items(&kit, id).await.remove(0).id;
    assign(&kit, item, "ann", HOUR).await;
    kit.advance(HOUR);
    assert_eq!(assign(&kit, item, "bob", HOUR).await, Assigned::Until(kit.now() + HOUR));
    assert_eq!(assign(&kit, item, "bob", Duration::ZERO).await, Assigned::Until(kit.now()));
    assert_eq!(complete(&kit, item, 1).await, Completed::Admitted { woke: true });
}

async fn interactions_are_listed_oldest_first_in_pages(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = parked(&kit, worker, each(&["a", "b", "c", "d", "e"])).await;
    let all: Vec<_> = items(&kit, id).await.iter().map(|item| item.id).collect();
    for status in [None, Some(InteractionStatus::Pending)] {
        for instance in [None, Some(id)] {
            let mut listed = Vec::new();
            loop {
                let after = listed.last().copied();
                let filter = InteractionFilter { status, instance, after, limit: 2, ..Default::default() };
                let page = kit.store.interactions(filter).await.expect("a read").items;
                if page.is_empty() {
                    break;
                }
                assert!(page.len() <= 2);
                listed.extend(page.iter().map(|item| item.id));
            }
            assert_eq!(listed, all);
        }
    }
}

async fn interactions_are_listed_by_what_they_are(kit: Kit) {
    let worker = kit.worker("w").await;
    let bank = parked(&kit, worker, Dispatch { transport: "bank".to_owned(), ..one("a") }).await;
    kit.advance(HOUR);
    let people = parked(&kit, worker, Dispatch { at: at("approved"), ..each(&["b", "c"]) }).await;
    let [b, c] = items(&kit, people).await.try_into().expect("two");
    assign(&kit, b.id, "ann", HOUR).await;
    complete(&kit, c.id, 1).await;
    let any = InteractionFilter::default;
    let filters = [
        (InteractionFilter { transport: Some("bank".to_owned()), ..any() }, vec!["a"]),
        (InteractionFilter { step: Some("approved".to_owned()), ..any() }, vec!["b", "c"]),
        (InteractionFilter { machine: Some("other".to_owned()), ..any() }, vec![]),
        (InteractionFilter { namespace: Some("default".to_owned()), ..any() }, vec!["a", "b", "c"]),
        (InteractionFilter { namespace: Some("other".to_owned()), ..any() }, vec![]),
        (InteractionFilter { assignee: Some("ann".to_owned()), ..any() }, vec!["b"]),
        (InteractionFilter { status: Some(InteractionStatus::Completed), ..any() }, vec!["c"]),
        (InteractionFilter { status: Some(InteractionStatus::Pending), ..any() }, vec!["a", "b"]),
        (InteractionFilter { instance: Some(bank), ..any() }, vec!["a"]),
        (InteractionFilter { opened_before: Some(kit.now()), ..any() }, vec!["a"]),
    ];
    for (filter, expected) in filters {
        let listed = kit.store.interactions(InteractionFilter { limit: 100, ..filter.clone() }).await;
        let listed = listed.expect("a read").items;
        let asked: Vec<String> =
            listed.iter().map(|item| item.request.decode("request").expect("a text")).collect();
        assert_eq!(asked, expected, "{filter:?}");
    }
    kit.advance(HOUR);
    let anns = InteractionFilter { assignee: Some("ann".to_owned()), limit: 100, ..any() };
    assert!(kit.store.interactions(anns).await.expect("a read").items.is_empty(), "her claim is over");
}

async fn interactions_are_counted_with_the_oldest_of_each(kit: Kit) {
    let worker = kit.worker("w").await;
    let first_at = kit.now();
    parked(&kit, worker, Dispatch { in_flight: Some(2), ..each(&["a", "b", "c"]) }).await;
    kit.advance(HOUR);
    let second = parked(&kit, worker, each(&["d", "e"])).await;
    complete(&kit, items(&kit, second).await[0].id, 1).await;
    let counts = kit.store.count_interactions(InteractionFilter::default()).await.expect("a read");
    let told: Vec<_> = counts.iter().map(|count| (count.status, count.count, count.oldest)).collect();
    let completed = (InteractionStatus::Completed, 1, first_at + HOUR);
    assert_eq!(told, [completed, (InteractionStatus::Pending, 3, first_at)]);
    let open = InteractionFilter { status: Some(InteractionStatus::Pending), ..Default::default() };
    assert_eq!(kit.store.count_interactions(open).await.expect("a read")[0].count, 3);
}

const HOUR: Duration = Duration::from_secs(3600);

fn correlated(id: &str) -> Dispatch {
    let dispatch = one("a");
    let asks = dispatch.asks.iter().map(|ask| Ask { correlation_id: Some(id.to_owned()), ..ask.clone() });
    Dispatch { asks: asks.collect(), ..dispatch.clone() }
}

async fn assign(kit: &Kit, id: InteractionId, who: &str, lease: Duration) -> Assigned {
    let assigned = kit.store.assign("default".to_owned(), id, who.to_owned(), lease).await;
    assigned.expect("a claim")
}

async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut pinned: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = pinned.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        let mut waits = false;
        for (future, output) in pinned.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(cx) {
                std::task::Poll::Ready(done) => *output = Some(done),
                std::task::Poll::Pending => waits = true,
            }
        }
        if waits { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
