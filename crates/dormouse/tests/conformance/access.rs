//! What a server needs of a store: API keys, the audit log, kept answers, the feed of changes, the overview.

use std::time::Duration;

use dormouse::store::{
    Admission, Answer, AuditFilter, Collect, Hold, NewApiKey, NewAudit, Repeatable, Scope,
};
use dormouse::{EventKind, Inserted, Status, When};

use crate::kit::*;

suite![
    an_api_key_is_found_by_its_public_part_until_it_expires_or_is_revoked,
    an_api_key_of_another_namespace_cannot_be_revoked,
    the_audit_log_is_told_newest_first_and_by_namespace,
    a_repeated_request_gets_the_first_answer,
    a_request_under_way_is_told_apart_and_given_up_after_a_while,
    a_request_that_was_not_answered_may_be_sent_again,
    old_answers_and_entries_are_tidied_away,
    changes_are_told_in_order_and_from_any_position,
    changes_are_told_by_namespace,
    a_reader_misses_nothing_of_what_many_write_at_once,
    the_backlog_tells_depths_and_ages,
    counts_are_kept_through_every_kind_of_move,
    a_collection_stays_in_its_namespace,
    a_store_tells_what_it_is,
];

const HOUR: Duration = Duration::from_secs(3600);

async fn an_api_key_is_found_by_its_public_part_until_it_expires_or_is_revoked(kit: Kit) {
    let store = kit.server();
    let made = store.add_api_key(api_key("one", Some(HOUR))).await.expect("a key");
    assert_eq!(store.api_key("one".into()).await.expect("a read"), Some(made.clone()));
    assert_eq!((made.hash, made.scope, made.is_live), ([7; 32], Scope::Operate, true));
    assert_eq!(store.api_key("two".into()).await.expect("a read"), None);
    kit.advance(HOUR);
    assert!(!store.api_key("one".into()).await.expect("a read").expect("a key").is_live, "it has expired");

    store.add_api_key(api_key("two", None)).await.expect("a key");
    let revoked = store.revoke_api_key(None, "two".into()).await.expect("a write").expect("a key");
    assert_eq!((revoked.is_live, revoked.revoked_at), (false, Some(kit.now())));
    let ids: Vec<_> = store.api_keys(None).await.expect("a read").into_iter().map(|key| key.id).collect();
    assert_eq!(ids, ["one", "two"]);
}

async fn an_api_key_of_another_namespace_cannot_be_revoked(kit: Kit) {
    let store = kit.server();
    store.add_api_key(api_key("one", None)).await.expect("a key");
    assert_eq!(store.revoke_api_key(Some("other".into()), "one".into()).await.expect("a write"), None);
    assert!(store.api_key("one".into()).await.expect("a read").expect("a key").is_live);
    assert!(store.api_keys(Some("other".into())).await.expect("a read").is_empty());
}

async fn the_audit_log_is_told_newest_first_and_by_namespace(kit: Kit) {
    let entries = ["a", "b", "a"].iter().zip(1..).map(|(namespace, n)| audit(namespace, &n.to_string()));
    kit.server().record_audit(entries.collect()).await.expect("a write");
    let targets = async |filter: AuditFilter| -> Vec<String> {
        let filter = AuditFilter { limit: 10, ..filter };
        let found = kit.server().audit(filter).await.expect("a read");
        found.into_iter().filter_map(|audit| audit.entry.target).collect()
    };
    assert_eq!(targets(AuditFilter::default()).await, ["3", "2", "1"]);
    let of_a = AuditFilter { namespace: Some("a".into()), ..AuditFilter::default() };
    assert_eq!(targets(of_a.clone()).await, ["3", "1"]);
    assert_eq!(targets(AuditFilter { before: Some(3), ..of_a.clone() }).await, ["1"]);
    assert_eq!(targets(AuditFilter { who: Some("nobody".into()), ..of_a }).await, [""; 0]);
}

async fn a_repeated_request_gets_the_first_answer(kit: Kit) {
    let store = kit.server();
    assert_eq!(store.admit(request(1)).await.expect("a write"), Admission::New);
    let answer = Answer { status: 201, body: "{}".into() };
    store.answer("default".into(), "k".into(), Some(answer.clone())).await.expect("a write");
    assert_eq!(store.admit(request(1)).await.expect("a write"), Admission::Answered(answer));
    assert_eq!(store.admit(request(2)).await.expect("a write"), Admission::Different);
    let elsewhere = Repeatable { namespace: "other".into(), ..request(1) };
    assert_eq!(store.admit(elsewhere).await.expect("a write"), Admission::New);
    kit.advance(HOUR);
    assert_eq!(store.admit(request(2)).await.expect("a write"), Admission::New, "it is forgotten");
}

async fn a_request_under_way_is_told_apart_and_given_up_after_a_while(kit: Kit) {
    let store = kit.server();
    assert_eq!(store.admit(request(1)).await.expect("a write"), Admission::New);
    assert_eq!(store.admit(request(1)).await.expect("a write"), Admission::UnderWay);
    kit.advance(Duration::from_secs(60));
    assert_eq!(store.admit(request(1)).await.expect("a write"), Admission::New);
}

async fn a_request_that_was_not_answered_may_be_sent_again(kit: Kit) {
    let store = kit.server();
    assert_eq!(store.admit(request(1)).await.expect("a write"), Admission::New);
    store.answer("default".into(), "k".into(), None).await.expect("a write");
    assert_eq!(store.admit(request(2)).await.expect("a write"), Admission::New);
}

async fn old_answers_and_entries_are_tidied_away(kit: Kit) {
    let store = kit.server();
    store.admit(request(1)).await.expect("a write");
    store.record_audit(vec![audit("a", "old")]).await.expect("a write");
    kit.advance(HOUR);
    store.record_audit(vec![audit("a", "new")]).await.expect("a write");
    assert_eq!(store.tidy(HOUR / 2, HOUR / 2, 100).await.expect("a write"), 2);
    assert_eq!(store.tidy(HOUR / 2, HOUR / 2, 100).await.expect("a write"), 0);
    let left = store.audit(AuditFilter { limit: 10, ..AuditFilter::default() }).await.expect("a read");
    assert_eq!(left.len(), 1);
}

async fn changes_are_told_in_order_and_from_any_position(kit: Kit) {
    let store = kit.server();
    let before = kit.feed_end().await;
    kit.insert(m()).await;
    assert_eq!(kit.feed(before, 1).await.len(), 1);
    let start = store.changes(None, None, 10).await.expect("a read");
    assert!(start.changes.is_empty() && !start.more);
    let id = kit.insert(m().key("k")).await;
    let worker = kit.worker("w").await;
    kit.claim(worker, 1).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, done())).await;

    assert_eq!(kit.feed(start.next, 2).await.len(), 2);
    let first = store.changes(None, Some(start.next), 1).await.expect("a read");
    assert!(first.more);
    let second = store.changes(None, Some(first.next), 10).await.expect("a read");
    let told: Vec<_> = first
        .changes
        .iter()
        .chain(&second.changes)
        .map(|change| (change.instance, change.kind, change.seq))
        .collect();
    assert_eq!(told, [(id, EventKind::Created, 1), (id, EventKind::Done, 2)]);
    assert_eq!((second.changes[0].status, second.changes[0].key.as_deref()), (Status::Done, Some("k")));
    let end = store.changes(None, Some(second.next), 10).await.expect("a read");
    assert_eq!((end.changes.len(), end.next, end.more), (0, second.next, false));
}

async fn changes_are_told_by_namespace(kit: Kit) {
    let start = kit.feed_end().await;
    kit.insert(m()).await;
    let tenant = kit.client().in_namespace("tenant").expect("a good name");
    let theirs = tenant.start_many([m()]).await.expect("a start")[0].id();
    kit.insert(m()).await;
    assert_eq!(kit.feed(start, 3).await.len(), 3);
    let told = kit.server().changes(Some("tenant".into()), Some(start), 10).await.expect("a read");
    assert_eq!(told.changes.iter().map(|change| change.instance).collect::<Vec<_>>(), [theirs]);
    let all = kit.server().changes(None, Some(start), 10).await.expect("a read");
    assert_eq!((all.changes.len(), told.next), (3, all.next), "the position is everyone's");
}

/// Many write at once, and a reader follows: it is told everything, once, and each instance's events in their order.
async fn a_reader_misses_nothing_of_what_many_write_at_once(kit: Kit) {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 25;
    let start = kit.feed_end().await;
    let ids: Vec<_> = kit.insert_many(vec![m(); WRITERS]).await.iter().map(Inserted::id).collect();
    let writers = (0..WRITERS).map(|writer| {
        let (client, ids) = (kit.client(), ids.clone());
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                // Two at a time, in changing company, so that transactions wait for each other's rows.
                let pair = [ids[writer], ids[(writer + round) % WRITERS]];
                for id in pair {
                    // Another may have cancelled or retried it just before.
                    let _ = client.cancel(id).await;
                    let _ = client.retry(id).await;
                }
                client.start_many([m(), m()]).await.expect("a start");
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let (mut told, mut position) = (Vec::new(), start);
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        let read = kit.server().changes(None, Some(position), 3).await.expect("a read");
        told.extend(read.changes);
        position = read.next;
    }
    let mut expected = 0;
    for instance in kit.list(dormouse::store::Filter::default()).await {
        expected += instance.seq as usize;
    }
    told.extend(kit.feed(position, expected - told.len()).await);
    assert_eq!(told.len(), expected);
    let mut seqs = std::collections::BTreeMap::new();
    for change in told {
        let seq: &mut u64 = seqs.entry(change.instance).or_default();
        *seq += 1;
        assert_eq!(change.seq, *seq, "of instance {}", change.instance);
    }
}

async fn the_backlog_tells_depths_and_ages(kit: Kit) {
    let worker = kit.worker("w").await;
    let first = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "next"))).await;
    let parked_at = kit.now();
    kit.advance(Duration::from_secs(5));
    kit.insert_many(vec![m().priority(3), m().priority(-1), m().queue("slow")]).await;
    let runnable_at = kit.now();
    kit.advance(Duration::from_secs(5));
    kit.insert(m()).await;
    kit.client().pause_queue("slow").await.expect("a queue");
    kit.client().pause_queue("empty").even_if_unknown().await.expect("a queue");
    let elsewhere = kit.client().in_namespace("tenant").expect("a good name");
    elsewhere.start_many([m()]).await.expect("a start");

    let backlog = kit.store.backlog(Some("default".into())).await.expect("a read");
    let queues: Vec<_> = backlog
        .queues
        .iter()
        .map(|queue| (queue.name.as_str(), queue.runnable, queue.oldest_runnable_at, queue.paused))
        .collect();
    let expected = [
        ("default", 3, Some(runnable_at), false),
        ("slow", 1, Some(runnable_at), true),
        ("empty", 0, None, true),
    ];
    assert_eq!(queues, expected);
    let awaiting: Vec<_> =
        backlog.awaiting.iter().map(|a| (a.names.clone(), a.count, a.oldest, a.since)).collect();
    assert_eq!(awaiting, [(vec!["go".to_owned()], 1, first, parked_at)]);
    assert_eq!(kit.store.backlog(None).await.expect("a read").queues.len(), 4);
    assert!(kit.store.backlog(Some("nobody".into())).await.expect("a read").awaiting.is_empty());
}

/// Every verb that moves an instance, and after each of them the kept counts are those of a count by hand.
async fn counts_are_kept_through_every_kind_of_move(kit: Kit) {
    let worker = kit.worker("w").await;
    let check = async |what: &str| kit.check_counts(what).await;
    let later = m().start_at(When::In(HOUR));
    let mut parked = m();
    parked.awaits = Some((vec!["go".to_owned()], None));
    let ids = kit.insert_many(vec![m(), m(), m().key("k"), m().key("k"), later, parked, m().lane("l")]).await;
    check("inserts").await;
    let claimed = kit.claim(worker, 2).await;
    check("claims").await;
    let held = dormouse::store::Commit { hold: Hold::Keep, ..commit(&claimed[0], next("ahead")) };
    kit.commit(worker, held).await;
    check("a run ahead").await;
    let children = vec![m(), m().key("k")];
    kit.commit(worker, commit(&claimed[1], dormouse::Transition::Spawn(spawn(children, "join")))).await;
    check("a spawn").await;
    kit.deliver(ids[5].id(), signal("go")).await;
    check("a signal").await;
    kit.advance(HOUR);
    kit.due().await;
    check("the clock").await;
    kit.client().cancel(claimed[1].id).await.expect("a live instance");
    check("a cancel").await;
    kit.client().retry(claimed[1].id).await.expect("a cancelled instance");
    check("a retry").await;
    for transition in [fail("broken"), done(), sleep("on", HOUR), replay("start", HOUR), next("on")] {
        let claimed = kit.claim_one(worker).await;
        kit.commit(worker, commit(&claimed, transition.clone())).await;
        check(&format!("{transition:?}")).await;
    }
    kit.store.deregister(worker).await.expect("a worker");
    kit.reap().await;
    check("a reap").await;
    let all = Collect {
        namespace: None,
        ended_for: Some(Duration::ZERO),
        events_for: None,
        events_after: 0,
        rows_max: 100,
    };
    assert!(kit.store.collect(all).await.expect("a write").instances > 0);
    check("a collection").await;
}

async fn a_collection_stays_in_its_namespace(kit: Kit) {
    let tenant = kit.client().in_namespace("tenant").expect("a good name");
    let theirs = tenant.start_many([m()]).await.expect("a start")[0].id();
    let ours = kit.insert(m()).await;
    tenant.cancel(theirs).await.expect("a live instance");
    kit.client().cancel(ours).await.expect("a live instance");
    assert_eq!(kit.client().collect(Duration::ZERO).await.expect("a write").instances, 1);
    assert!(kit.client().get(ours).await.expect("a read").is_none());
    assert!(tenant.get(theirs).await.expect("a read").is_some());
}

async fn a_store_tells_what_it_is(kit: Kit) {
    let about = kit.store.about().await.expect("a read");
    // A file is made when it is opened; a server's database was migrated before.
    let found = if about.store == "sqlite" { 0 } else { about.schema };
    assert_eq!((about.schema_found, about.now), (found, kit.now()));
    assert!(about.schema > 0 && !about.store.is_empty() && !about.version.is_empty());
}

fn api_key(id: &str, expires: Option<Duration>) -> NewApiKey {
    NewApiKey {
        id: id.to_owned(),
        hash: [7; 32],
        label: "a test".to_owned(),
        namespace: "default".to_owned(),
        scope: Scope::Operate,
        expires: expires.map(When::In),
    }
}

fn audit(namespace: &str, target: &str) -> NewAudit {
    NewAudit {
        namespace: namespace.to_owned(),
        who: "somebody".to_owned(),
        what: "instance.cancel".to_owned(),
        target: Some(target.to_owned()),
        result: "ok".to_owned(),
    }
}

fn request(fingerprint: u8) -> Repeatable {
    Repeatable {
        namespace: "default".to_owned(),
        key: "k".to_owned(),
        fingerprint: [fingerprint; 32],
        kept_for: HOUR,
        given_up_after: Duration::from_secs(60),
    }
}
