//! Searches: by fields of the state, by errors, times, steps and versions, each page at a bounded cost.

use std::time::Duration;

use dormouse::store::{Filter, Hold, LOOKED_MAX, Looked, NewWorker, Page};
use dormouse::{Declaration, InstanceId, NewInstance, Status, Transition};
use serde_json::json;

use crate::kit::*;

suite![
    instances_are_found_by_the_fields_of_their_state,
    an_index_finds_the_same_instances,
    a_search_by_an_indexed_field_looks_only_at_what_matches,
    an_index_follows_every_way_in_which_a_state_changes,
    instances_that_were_there_before_an_index_are_found_too,
    a_search_that_no_index_leads_goes_on_after_ten_thousand_rows,
    instances_are_found_by_step_version_status_error_and_times,
    a_search_stays_in_its_namespace,
    values_that_no_index_can_hold_hold_up_nobody,
    an_index_is_cleared_when_its_instances_are_collected,
];

fn declaring(indexes: &[&str]) -> Declaration {
    Declaration {
        name: "m".to_owned(),
        version: 1,
        migrates_from: 1,
        steps: vec![],
        queue: "default".to_owned(),
        keeps_history: true,
        states: vec![],
        accepts_others: true,
        accepts: vec![],
        takes: vec![],
        undo_on_cancel: vec![],
        indexes: indexes.iter().map(ToString::to_string).collect(),
        graph: None,
    }
}

/// A worker whose `m` has these fields indexed.
async fn indexing(kit: &Kit, indexes: &[&str]) -> dormouse::WorkerId {
    let worker = NewWorker { declares: vec![declaring(indexes)], ..kit.new_worker("w") };
    kit.store.register(worker).await.expect("a registration")
}

fn order(total: u64, customer: &str) -> NewInstance {
    m_at(at_with(
        "start",
        json!({ "total": total, "customer": customer, "at": { "city": "Bern" }, "paid": total > 50 }),
    ))
}

fn searching(conditions: &[&str]) -> Filter {
    let conditions = conditions.iter().map(|text| text.parse().expect("a condition")).collect();
    Filter { machine: Some("m".to_owned()), conditions, ..Filter::default() }
}

async fn page(kit: &Kit, filter: Filter) -> Page {
    kit.client().list(filter).await.expect("a read")
}

/// What a filter finds on all pages, and how many rows it looked at for that.
async fn all(kit: &Kit, mut filter: Filter) -> (Vec<InstanceId>, usize) {
    let (mut ids, mut looked) = (Vec::new(), 0);
    loop {
        let page = page(kit, filter.clone()).await;
        looked += page.looked.expect("it is a search").rows;
        ids.extend(page.instances.iter().map(|instance| instance.id));
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return (ids, looked),
        }
    }
}

async fn found(kit: &Kit, conditions: &[&str]) -> Vec<InstanceId> {
    all(kit, searching(conditions)).await.0
}

async fn instances_are_found_by_the_fields_of_their_state(kit: Kit) {
    found_by_fields(&kit, &[]).await;
}

async fn an_index_finds_the_same_instances(kit: Kit) {
    found_by_fields(&kit, &["total", "customer", "at.city", "paid"]).await;
}

async fn found_by_fields(kit: &Kit, indexes: &[&str]) {
    indexing(kit, indexes).await;
    let small = kit.insert(order(9, "acme")).await;
    let large = kit.insert(order(1_000, "acme")).await;
    let other = kit.insert(order(100, "Émile & Co \"x\"")).await;
    let bare = kit.insert(m()).await;
    let text = kit.insert(m_at(at_with("start", json!({ "total": "1000", "paid": "true" })))).await;
    for (conditions, expected) in [
        (&["total > 9"][..], vec![other, large]),
        (&["total >= 9"], vec![other, large, small]),
        (&["total = 1000"], vec![large]),
        (&["total = 1e3"], vec![large]),
        (&["total != 1000"], vec![other, small]),
        (&["total < 99.5"], vec![small]),
        (&["total <= 100", "customer = acme"], vec![small]),
        (&["customer = acme", "total > 9"], vec![large]),
        (&["customer = \"Émile & Co \\\"x\\\"\""], vec![other]),
        (&["customer > acme"], vec![other]),
        (&["customer != acme"], vec![other]),
        (&["at.city = Bern"], vec![other, large, small]),
        (&["at.town = Bern"], vec![]),
        (&["total = \"1000\""], vec![text]),
        (&["paid = true"], vec![other, large]),
        (&["paid = false"], vec![small]),
        (&["paid = \"true\""], vec![text]),
        (&["customer = ACME"], vec![]),
    ] {
        assert_eq!(found(kit, conditions).await, expected, "{conditions:?} with {indexes:?}");
    }
    let mut oldest = searching(&["total > 1"]);
    oldest.oldest_first = true;
    oldest.limit = 1;
    assert_eq!(all(kit, oldest).await.0, [small, large, other], "with {indexes:?}");
    assert_eq!(kit.status(bare).await, Status::Runnable);
}

async fn a_search_by_an_indexed_field_looks_only_at_what_matches(kit: Kit) {
    indexing(&kit, &["total"]).await;
    kit.insert_many((0..300).map(|total| order(total, "acme")).collect()).await;
    let led = page(&kit, searching(&["total >= 290"])).await;
    assert_eq!((led.instances.len(), led.next), (10, None));
    assert_eq!(led.looked, Some(Looked { rows: 10, indexed: true }));
    let narrowed = page(&kit, searching(&["customer = acme", "total = 7"])).await;
    assert_eq!(narrowed.looked, Some(Looked { rows: 1, indexed: true }), "whichever comes first");
    let not_led = page(&kit, searching(&["customer = acme"])).await;
    assert_eq!((not_led.instances.len(), not_led.looked), (100, Some(Looked { rows: 300, indexed: false })));
    // An index is of one machine.
    let of_any = Filter { machine: None, ..searching(&["total >= 290"]) };
    assert_eq!(page(&kit, of_any).await.looked, Some(Looked { rows: 300, indexed: false }));
}

async fn an_index_follows_every_way_in_which_a_state_changes(kit: Kit) {
    let worker = indexing(&kit, &["total"]).await;
    let id = kit.insert(order(1, "acme")).await;
    let at = |total: u64| at_with("start", json!({ "total": total }));
    let ahead = Transition::Next { at: at(2), ahead: true };
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, dormouse::store::Commit { hold: Hold::Keep, ..commit(&claimed, ahead) }).await;
    assert_eq!((found(&kit, &["total = 2"]).await, found(&kit, &["total = 1"]).await), (vec![id], vec![]));
    // It gave its claim up with the engine that held it.
    let worker = indexing(&kit, &["total"]).await;
    kit.reap().await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, Transition::Next { at: at(3), ahead: false })).await;
    assert_eq!(found(&kit, &["total = 3"]).await, [id]);
    let claimed = kit.claim_one(worker).await;
    let waits = Transition::Await { at: at(4), names: vec!["go".to_owned()], timeout: None };
    kit.commit(worker, commit(&claimed, waits)).await;
    assert_eq!(found(&kit, &["total >= 1"]).await, [id]);
    assert_eq!(found(&kit, &["total = 4"]).await, [id]);
    kit.deliver(id, signal("go")).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, fail("boom"))).await;
    assert_eq!(found(&kit, &["total = 4"]).await, [id]);
    kit.client().retry_raw(id, at(5)).await.expect("a retry");
    assert_eq!((found(&kit, &["total = 5"]).await, found(&kit, &["total = 4"]).await), (vec![id], vec![]));
    let forked = kit.client().fork(id, 1, |new| new).await.expect("a fork");
    assert_eq!(found(&kit, &["total = 1"]).await, [forked]);
    // A state without the field is in no index.
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, next("start"))).await;
    assert_eq!(found(&kit, &["total >= 0"]).await.len(), 1);
}

async fn instances_that_were_there_before_an_index_are_found_too(kit: Kit) {
    let before = kit.insert(order(7, "acme")).await;
    indexing(&kit, &["total"]).await;
    let after = kit.insert(order(7, "acme")).await;
    assert_eq!(found(&kit, &["total = 7"]).await, [after, before]);
    let mut oldest = searching(&["total = 7"]);
    oldest.oldest_first = true;
    assert_eq!(all(&kit, oldest).await.0, [before, after]);
}

async fn a_search_that_no_index_leads_goes_on_after_ten_thousand_rows(kit: Kit) {
    let first = kit.insert(order(1, "first")).await;
    for _ in 0..11 {
        kit.insert_many((0..1_000).map(|total| order(total, "acme")).collect()).await;
    }
    let looked = page(&kit, searching(&["customer = first"])).await;
    assert!(looked.instances.is_empty() && looked.next.is_some(), "it says that it has not looked at all");
    assert_eq!(looked.looked, Some(Looked { rows: LOOKED_MAX, indexed: false }));
    let (ids, rows) = all(&kit, searching(&["customer = first"])).await;
    assert_eq!((ids, rows), (vec![first], 11_001));
    // As many pages as one likes find each once.
    let (ids, _) = all(&kit, Filter { limit: 500, ..searching(&["total < 100"]) }).await;
    assert_eq!(ids.len(), 11 * 100 + 1);
    assert!(ids.is_sorted_by(|one, next| one > next), "newest first, each once");
}

async fn instances_are_found_by_step_version_status_error_and_times(kit: Kit) {
    let worker = kit.worker("w").await;
    let failed = kit.insert(m()).await;
    let start = kit.now();
    kit.advance(Duration::from_secs(10));
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, fail("Connection REFUSED by the bank"))).await;
    let ended = kit.now();
    kit.advance(Duration::from_secs(10));
    let waits = kit.insert(m_at(at("pay"))).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "paid"))).await;
    let mut second = m();
    second.version = 2;
    let second = kit.insert(second).await;
    let with = async |filter: Filter| all(&kit, filter).await.0;
    let any = Filter::default;
    assert_eq!(with(Filter { step: Some("paid".to_owned()), ..any() }).await, [waits]);
    assert_eq!(with(Filter { version: Some(2), ..any() }).await, [second]);
    assert_eq!(with(Filter { error: Some("refused".to_owned()), ..any() }).await, [failed]);
    assert!(with(Filter { error: Some("refuse%".to_owned()), ..any() }).await.is_empty());
    let statuses = vec![Status::Failed, Status::AwaitingSignal];
    assert_eq!(with(Filter { statuses, ..any() }).await, [waits, failed]);
    let both = Filter { statuses: vec![Status::Failed], error: Some("bank".to_owned()), ..any() };
    assert_eq!(page(&kit, both).await.looked, Some(Looked { rows: 1, indexed: true }));
    assert_eq!(with(Filter { ended_from: Some(ended), ..any() }).await, [failed]);
    assert!(with(Filter { ended_before: Some(ended), ..any() }).await.is_empty());
    assert_eq!(
        with(Filter { changed_before: Some(ended + Duration::from_secs(1)), ..any() }).await,
        [failed]
    );
    let from = ended + Duration::from_secs(1);
    assert_eq!(with(Filter { changed_from: Some(from), ..any() }).await, [second, waits]);
    let created =
        Filter { created_before: Some(start + Duration::from_secs(1)), oldest_first: true, ..any() };
    assert_eq!(with(created).await, [failed]);
    let parked = Filter { awaiting: Some("go".to_owned()), step: Some("paid".to_owned()), ..any() };
    assert_eq!(with(parked).await, [waits]);
    for nul in ["\0", "a\0b"] {
        assert!(with(Filter { error: Some(nul.to_owned()), ..any() }).await.is_empty());
    }
}

async fn a_search_stays_in_its_namespace(kit: Kit) {
    indexing(&kit, &["total"]).await;
    let here = kit.insert(order(3, "acme")).await;
    let tenant = kit.client().in_namespace("tenant").expect("a good name");
    let there = tenant.start_many([order(3, "acme")]).await.expect("a start")[0].id();
    for conditions in [["total = 3"], ["customer = acme"]] {
        assert_eq!(found(&kit, &conditions).await, [here]);
        let theirs = tenant.list(searching(&conditions)).await.expect("a read").instances;
        assert_eq!(theirs.iter().map(|row| row.id).collect::<Vec<_>>(), [there]);
    }
}

async fn values_that_no_index_can_hold_hold_up_nobody(kit: Kit) {
    let worker = indexing(&kit, &["total", "customer"]).await;
    let long = "x".repeat(100_000);
    let huge = "9".repeat(300);
    for state in [
        json!({ "customer": "a\0b", "total": 1 }).to_string(),
        json!({ "customer": long, "total": 2 }).to_string(),
        format!(r#"{{"customer": "acme", "total": {huge}}}"#),
        r#"{"customer": ["acme"], "total": null}"#.to_owned(),
        r#""acme""#.to_owned(),
    ] {
        let Ok(state) = dormouse::Json::parse("state", state.clone()) else { panic!("{state}") };
        let new = m_at(dormouse::At { step: "start".into(), state });
        // What a store does not take is refused before anything is written.
        let Ok(started) = kit.client().start_many([new]).await else { continue };
        let claimed = kit.claim_one(worker).await;
        assert_eq!(claimed.id, started[0].id());
        kit.commit(worker, commit(&claimed, done())).await;
        assert_eq!(kit.status(claimed.id).await, Status::Done);
    }
    assert_eq!(found(&kit, &[&format!("customer = {}", "x".repeat(100_000))]).await.len(), 1);
}

async fn an_index_is_cleared_when_its_instances_are_collected(kit: Kit) {
    let worker = indexing(&kit, &["total"]).await;
    let id = kit.insert(order(3, "acme")).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, done())).await;
    assert_eq!(found(&kit, &["total = 3"]).await, [id]);
    kit.advance(Duration::from_secs(60));
    assert_eq!(kit.client().collect(Duration::from_secs(30)).await.expect("a sweep").instances, 1);
    let after = page(&kit, searching(&["total = 3"])).await;
    assert_eq!((after.instances.len(), after.looked), (0, Some(Looked { rows: 0, indexed: true })));
}
