//! Keys and namespaces.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Claim, Filter, Namespaces, Receipt, Turns};
use dormouse::{Delivered, Error, EventKind, Inserted, InstanceId, KeyScope, Status, Transition};

use crate::kit::*;

suite![
    a_taken_key_is_refused_with_the_id_that_holds_it,
    a_batch_tells_for_each_entry_what_became_of_it,
    a_key_is_free_again_after_every_kind_of_end,
    a_key_of_scope_always_stays_taken_after_the_end,
    a_key_with_a_scope_of_its_own_is_taken_in_just_those_statuses,
    a_key_counts_as_taken_in_the_status_in_which_an_instance_starts,
    batches_with_the_same_new_keys_in_opposite_order_insert_each_once_and_tell_everyone,
    a_retry_into_a_taken_key_is_a_conflict_and_changes_nothing,
    a_fork_takes_no_key_along_and_a_taken_one_is_a_conflict,
    a_commit_into_a_status_whose_key_is_taken_fails_that_instance_alone,
    a_reap_into_a_status_whose_key_is_taken_fails_that_instance_alone,
    a_claim_into_a_status_whose_key_is_taken_fails_that_instance_alone,
    a_batch_claim_takes_rows_with_one_key_as_if_each_were_claimed_alone,
    one_that_failed_for_a_taken_key_can_hold_it_after_a_retry,
    signals_that_come_together_are_stored_even_if_the_first_wake_fails_for_a_taken_key,
    an_end_whose_key_is_taken_is_kept_without_the_key,
    a_child_that_fails_for_a_taken_key_joins_its_parent,
    a_key_means_whoever_holds_it_before_a_newer_one_that_ended,
    a_key_means_a_live_instance_before_a_newer_one_that_ended,
    a_key_means_the_newest_that_had_it_when_all_have_ended,
    a_list_heeds_every_condition_of_its_filter,
    keys_are_per_namespace,
    an_id_of_another_namespace_is_as_unknown_as_one_that_never_was,
    lanes_and_queues_are_per_namespace,
    a_worker_claims_only_from_the_namespaces_it_serves,
    a_namespace_named_twice_is_claimed_from_once,
    an_engine_serves_only_its_namespaces,
];

async fn a_taken_key_is_refused_with_the_id_that_holds_it(kit: Kit) {
    let client = kit.client();
    let id = client.start::<Shop>(Order::Open).key("order:1").await.expect("a free key");
    let refused = client.start::<Shop>(Order::Open).key("order:1").await.expect_err("it is taken");
    assert!(
        matches!(&refused, Error::KeyTaken { key, holder } if key == "order:1" && *holder == id),
        "{refused}"
    );
    assert_eq!(kit.list(Filter::default()).await.len(), 1, "nothing was inserted");
    client.start::<Shop>(Order::Open).key("order:2").await.expect("another key is free");
}

async fn a_batch_tells_for_each_entry_what_became_of_it(kit: Kit) {
    let holder = kit.insert(m().key("old")).await;
    let batch = vec![m().key("new"), m().key("old"), m().key("new"), m(), m(), m().key("last")];
    let told = kit.insert_many(batch).await;
    let taken = |holder| Inserted::Taken { holder, signals: Vec::new() };
    let Inserted::New(new) = told[0] else { panic!("expected a new instance, got {told:?}") };
    assert_eq!((&told[1], &told[2]), (&taken(holder), &taken(new)));
    assert!(told[3..].iter().all(|inserted| matches!(inserted, Inserted::New(_))), "{told:?}");
    assert_eq!(kit.list(Filter::default()).await.len(), 5);
}

async fn a_key_is_free_again_after_every_kind_of_end(kit: Kit) {
    let worker = kit.worker("w").await;
    for end in [done(), fail("boom")] {
        kit.insert(m().key("k")).await;
        let claimed = kit.claim_one(worker).await;
        assert!(matches!(kit.insert_many(vec![m().key("k")]).await[0], Inserted::Taken { .. }));
        kit.commit(worker, commit(&claimed, end)).await;
    }
    let cancelled = kit.insert(m().key("k")).await;
    kit.client().cancel(cancelled).await.expect("a live instance");
    kit.insert(m().key("k")).await;
}

async fn a_key_of_scope_always_stays_taken_after_the_end(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m().key("k").key_scope(KeyScope::Always)).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, done())).await;
    for scope in [KeyScope::Live, KeyScope::Always] {
        let told = kit.insert_many(vec![m().key("k").key_scope(scope)]).await;
        assert_eq!(told, [Inserted::Taken { holder: id, signals: Vec::new() }]);
    }
    kit.advance(Duration::from_secs(10));
    kit.client().collect(Duration::from_secs(1)).await.expect("a collection");
    kit.insert(m().key("k")).await;
}

async fn a_key_with_a_scope_of_its_own_is_taken_in_just_those_statuses(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m().key("k").key_scope(in_statuses(&[Status::AwaitingSignal, Status::Done]))).await;
    let end_another = async || {
        let other = kit.insert(NewInstance::named("other", 1, at("start")).key("k")).await;
        kit.client().cancel(other).await.expect("a live instance");
    };
    end_another().await;
    let claimed = kit.claim_one(worker).await;
    end_another().await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "end"))).await;
    let taken = [Inserted::Taken { holder: id, signals: Vec::new() }];
    assert_eq!(kit.insert_many(vec![m().key("k")]).await, taken);
    kit.deliver(id, signal("go")).await;
    end_another().await;
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, done())).await;
    assert_eq!(kit.insert_many(vec![m().key("k")]).await, taken);
}

async fn a_key_counts_as_taken_in_the_status_in_which_an_instance_starts(kit: Kit) {
    let keyed = |status| m().key("k").key_scope(KeyScope::In(vec![status]));
    let parked = |mut new: NewInstance| {
        new.awaits = Some((vec!["s".to_owned()], None));
        new
    };
    let waits = kit.insert(parked(keyed(Status::AwaitingSignal))).await;
    let refused = kit.insert_many(vec![parked(keyed(Status::AwaitingSignal))]).await;
    assert_eq!(refused, [Inserted::Taken { holder: waits, signals: Vec::new() }]);
    assert_eq!(kit.list(Filter::default()).await.len(), 1, "nothing was inserted");
    kit.client().cancel(waits).await.expect("a live instance");
    let runs = kit.insert(keyed(Status::Runnable)).await;
    let parks = kit.insert(parked(keyed(Status::Runnable))).await;
    assert_eq!(kit.status(parks).await, Status::AwaitingSignal, "it never was runnable");
    assert_eq!(kit.status(runs).await, Status::Runnable);
}

async fn batches_with_the_same_new_keys_in_opposite_order_insert_each_once_and_tell_everyone(kit: Kit) {
    for round in 0..20 {
        let batch: Vec<_> = (0..40).map(|n| m().key(format!("{round}-{n:02}"))).collect();
        let reversed: Vec<_> = batch.iter().rev().cloned().collect();
        let (one, other) = tokio::join!(
            tokio::spawn({
                let store = kit.store.clone();
                async move { store.insert(batch).await }
            }),
            tokio::spawn({
                let store = kit.store.clone();
                async move { store.insert(reversed).await }
            }),
        );
        let one = one.expect("no panic").expect("an insert").value;
        let mut other = other.expect("no panic").expect("an insert").value;
        other.reverse();
        for (one, other) in one.iter().zip(&other) {
            assert_eq!(one.id(), other.id(), "both are told of the same instance");
            let new = [one, other].iter().filter(|told| matches!(told, Inserted::New(_))).count();
            assert_eq!(new, 1, "{one:?} {other:?}");
        }
        assert_eq!(with_key(&kit, &format!("{round}-")).await.len(), 40);
    }
}

async fn a_retry_into_a_taken_key_is_a_conflict_and_changes_nothing(kit: Kit) {
    let worker = kit.worker("w").await;
    let failed = kit.insert(m().key("k")).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, fail("boom"))).await;
    let holder = kit.insert(m().key("k")).await;
    let before = kit.get(failed).await;
    let refused = kit.client().retry(failed).await.expect_err("its key is taken");
    assert!(matches!(&refused, Error::KeyTaken { key, holder: by } if key == "k" && *by == holder));
    assert_eq!(kit.get(failed).await, before);
    kit.client().cancel(holder).await.expect("a live instance");
    kit.client().retry(failed).await.expect("the key is free again");
    assert!(matches!(kit.insert_many(vec![m().key("k")]).await[0], Inserted::Taken { .. }));
}

async fn a_fork_takes_no_key_along_and_a_taken_one_is_a_conflict(kit: Kit) {
    let client = kit.client();
    let origin = kit.insert(m().key("k")).await;
    let fork = client.fork(origin, 1, |new| new).await.expect("a fork");
    assert_eq!(kit.get(fork).await.key, None);
    let refused = client.fork(origin, 1, |new| new.key("k")).await.expect_err("its key is taken");
    assert!(matches!(&refused, Error::KeyTaken { key, holder } if key == "k" && *holder == origin));
    let fork = client.fork("k", 1, |new| new.key("free")).await.expect("a free key");
    assert_eq!(kit.get(fork).await.key.as_deref(), Some("free"));
}

async fn a_commit_into_a_status_whose_key_is_taken_fails_that_instance_alone(kit: Kit) {
    let worker = kit.worker("w").await;
    let unlucky = kit.insert(m().key("k").key_scope(in_statuses(&[Status::AwaitingSignal]))).await;
    let others = [kit.insert(m()).await, kit.insert(m()).await];
    let claimed = kit.claim(worker, 3).await;
    let holder = kit.insert(NewInstance::named("other", 1, at("start")).key("k")).await;
    let commits = claimed.iter().map(|row| commit(row, wait_for(&["go"], "end"))).collect();
    let receipts = kit.commit_many(worker, commits).await;
    assert!(receipts.iter().all(|receipt| matches!(receipt, Receipt::Released)), "{receipts:?}");
    for other in others {
        assert_eq!(kit.status(other).await, Status::AwaitingSignal);
    }
    failed_for(&kit, unlucky, holder).await;
    assert_eq!(kit.story(unlucky).await.last(), Some(&EventKind::Failed));
}

async fn a_reap_into_a_status_whose_key_is_taken_fails_that_instance_alone(kit: Kit) {
    let mortal = kit.worker_with_lease("mortal", Duration::from_secs(1)).await;
    let unlucky = kit.insert(m().key("k").key_scope(in_statuses(&[Status::Runnable]))).await;
    let other = kit.insert(m()).await;
    assert_eq!(kit.claim(mortal, 2).await.len(), 2);
    let holder = kit.insert(NewInstance::named("other", 1, at("start")).key("k")).await;
    kit.advance(Duration::from_secs(2));
    assert_eq!(kit.reap().await, 2);
    assert_eq!(kit.status(other).await, Status::Runnable);
    failed_for(&kit, unlucky, holder).await;
}

async fn a_claim_into_a_status_whose_key_is_taken_fails_that_instance_alone(kit: Kit) {
    let worker = kit.worker("w").await;
    let scope = || in_statuses(&[Status::Executing]);
    let first = kit.insert(m().key("k").key_scope(scope())).await;
    let second = kit.insert(m().key("k").key_scope(scope())).await;
    let other = kit.insert(m()).await;
    let claimed: Vec<_> = kit.claim(worker, 10).await.iter().map(|row| row.id).collect();
    assert_eq!(claimed, [first, other], "one bad row does not keep the others from running");
    failed_for(&kit, second, first).await;
}

async fn a_batch_claim_takes_rows_with_one_key_as_if_each_were_claimed_alone(kit: Kit) {
    let worker = kit.worker("w").await;
    let keyed = |key: &str, status| m().key(key).key_scope(KeyScope::In(vec![status]));
    let behind = kit.insert(keyed("one runs", Status::Executing).priority(1)).await;
    let first = kit.insert(keyed("one runs", Status::Executing).priority(0)).await;
    let leaves = kit.insert(keyed("passed on", Status::Runnable).priority(2)).await;
    let follows = kit.insert(keyed("passed on", Status::Executing).priority(3)).await;
    let hasty = kit.insert(keyed("not yet free", Status::Executing).priority(4)).await;
    let holds = kit.insert(keyed("not yet free", Status::Runnable).priority(5)).await;
    let claimed: Vec<_> = kit.claim(worker, 10).await.iter().map(|claimed| claimed.id).collect();
    assert_eq!(claimed, [first, leaves, follows, holds]);
    for (failed, holder) in [(behind, first), (hasty, holds)] {
        let error = kit.get(failed).await.last_error.expect("an error");
        assert_eq!(
            error,
            format!("it could not become executing: its key is taken by instance {holder}"),
            "the claim's order decides"
        );
    }
}

async fn one_that_failed_for_a_taken_key_can_hold_it_after_a_retry(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m().key("k").key_scope(in_statuses(&[Status::AwaitingSignal]))).await;
    let claimed = kit.claim_one(worker).await;
    let holder = kit.insert(NewInstance::named("other", 1, at("start")).key("k")).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "end"))).await;
    failed_for(&kit, id, holder).await;
    kit.client().cancel(holder).await.expect("a live instance");
    kit.client().retry(id).await.expect("its key is free");
    assert_eq!(kit.status(id).await, Status::AwaitingSignal);
    let told = kit.insert_many(vec![m().key("k")]).await;
    assert_eq!(told, [Inserted::Taken { holder: id, signals: Vec::new() }]);
}

async fn signals_that_come_together_are_stored_even_if_the_first_wake_fails_for_a_taken_key(kit: Kit) {
    let holder = kit.insert(m().key("k")).await;
    let mut waits = m().key("k").key_scope(KeyScope::In(vec![Status::Runnable]));
    waits.awaits = Some((vec!["s".to_owned()], None));
    let id = kit.insert(waits).await;
    let told = kit.client().signal_many([(id.into(), signal("s")), (id.into(), signal("t"))]).await;
    let told = told.expect("a batch");
    assert!(matches!(told[0], Delivered::Accepted { woke: true, .. }), "{told:?}");
    assert!(matches!(told[1], Delivered::Accepted { woke: false, .. }), "{told:?}");
    let failed = kit.get(id).await;
    assert_eq!((failed.status, failed.inbox), (Status::Failed, 2), "a retry finds both");
    assert!(failed.last_error.is_some_and(|error| error.ends_with(&format!("by instance {holder}"))));
}

async fn an_end_whose_key_is_taken_is_kept_without_the_key(kit: Kit) {
    let worker = kit.worker("w").await;
    for (end, status) in [(done(), Status::Done), (fail("boom"), Status::Failed)] {
        let id = kit.insert(m().key("k").key_scope(in_statuses(&[Status::Done, Status::Failed]))).await;
        let claimed = kit.claim_one(worker).await;
        let holder = kit.insert(NewInstance::named("other", 1, at("start")).key("k")).await;
        kit.commit(worker, commit(&claimed, end)).await;
        assert_eq!(kit.status(id).await, status, "what is over stays over");
        let found = kit.client().get("k").await.expect("a read").expect("a holder");
        assert_eq!(found.id, holder);
        kit.client().cancel(holder).await.expect("a live instance");
    }
}

async fn a_child_that_fails_for_a_taken_key_joins_its_parent(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let child = NewInstance::named("c", 1, at("start")).key("k");
    let child = child.key_scope(in_statuses(&[Status::AwaitingSignal]));
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(vec![child], "join")))).await;
    let child = kit.claim_from(worker, "default", &[("c", 1)], 1).await.remove(0);
    kit.insert(NewInstance::named("other", 1, at("start")).key("k")).await;
    kit.commit(worker, commit(&child, wait_for(&["go"], "end"))).await;
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.children[0].status), (parent, Status::Failed));
}

async fn a_key_means_whoever_holds_it_before_a_newer_one_that_ended(kit: Kit) {
    let worker = kit.worker("w").await;
    let holder = kit.insert(m().key("k").key_scope(in_statuses(&[Status::Done]))).await;
    let claimed = kit.claim_one(worker).await;
    let newer = kit.insert(m().key("k")).await;
    kit.client().cancel(newer).await.expect("a live instance");
    kit.commit(worker, commit(&claimed, done())).await;
    let found = kit.client().get("k").await.expect("a read").expect("a holder");
    assert_eq!((found.id, found.status), (holder, Status::Done));
}

async fn a_key_means_a_live_instance_before_a_newer_one_that_ended(kit: Kit) {
    let live = kit.insert(m().key("k").key_scope(in_statuses(&[Status::Done]))).await;
    let newer = kit.insert(m().key("k")).await;
    kit.client().cancel(newer).await.expect("a live instance");
    let delivered = kit.client().signal_raw("k", signal("hello")).await.expect("a live target");
    assert!(matches!(delivered, Delivered::Accepted { .. }));
    assert_eq!(kit.get(live).await.inbox, 1);
}

async fn a_key_means_the_newest_that_had_it_when_all_have_ended(kit: Kit) {
    let mut last = None;
    for _ in 0..3 {
        let id = kit.insert(m().key("k")).await;
        kit.client().cancel("k").await.expect("the live one");
        last = Some(id);
    }
    assert_eq!(kit.client().get("k").await.expect("a read").map(|found| found.id), last);
    assert!(kit.client().get("unknown").await.expect("a read").is_none());
}

async fn a_list_heeds_every_condition_of_its_filter(kit: Kit) {
    let worker = kit.worker("w").await;
    let parked = |key: &str| {
        let mut new = m().key(key);
        new.awaits = Some((vec!["s".to_owned()], None));
        new
    };
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let children = spawn(vec![parked("a1"), parked("b1"), m().key("a2")], "end");
    kit.commit(worker, commit(&claimed, Transition::Spawn(children))).await;
    kit.insert(parked("a3")).await;
    let (awaiting, key_prefix) = (Some("s".to_owned()), Some("a".to_owned()));
    let keys = async |filter: Filter| {
        let found = kit.list(filter).await.into_iter().filter_map(|instance| instance.key);
        found.collect::<Vec<_>>()
    };
    let of_name = Filter { awaiting, ..Filter::default() };
    assert_eq!(keys(of_name.clone()).await, ["a1", "b1", "a3"]);
    assert_eq!(keys(Filter { parent: Some(parent), ..of_name.clone() }).await, ["a1", "b1"]);
    assert_eq!(keys(Filter { key_prefix: key_prefix.clone(), ..of_name.clone() }).await, ["a1", "a3"]);
    assert_eq!(keys(Filter { status: Some(Status::Runnable), ..of_name }).await, [""; 0]);
    let of_key = Filter { key_prefix, ..Filter::default() };
    assert_eq!(keys(of_key.clone()).await, ["a3", "a2", "a1"], "in every namespace");
    assert_eq!(keys(Filter { parent: Some(parent), ..of_key }).await, ["a2", "a1"]);
}

async fn keys_are_per_namespace(kit: Kit) {
    let [a, b] = ["a", "b"].map(|name| kit.client().in_namespace(name).expect("a good name"));
    let in_a = a.start_many([m().key("k")]).await.expect("a start")[0].id();
    let in_b = b.start_many([m().key("k")]).await.expect("a start")[0].id();
    assert_ne!(in_a, in_b, "the same key in two namespaces is two instances");
    a.signal_raw("k", signal("for a")).await.expect("a live target");
    assert_eq!((kit.get(in_a).await.inbox, kit.get(in_b).await.inbox), (1, 0));
    b.cancel("k").await.expect("a live target");
    assert_eq!((kit.status(in_a).await, kit.status(in_b).await), (Status::Runnable, Status::Cancelled));
    assert!(kit.client().get("k").await.expect("a read").is_none(), "and in none of the default's");
}

async fn an_id_of_another_namespace_is_as_unknown_as_one_that_never_was(kit: Kit) {
    let [a, b] = ["a", "b"].map(|name| kit.client().in_namespace(name).expect("a good name"));
    let theirs = a.start_many([m()]).await.expect("a start")[0].id();
    let before = kit.get(theirs).await;
    let never = InstanceId(i64::MAX);
    for id in [theirs, never] {
        assert_eq!(b.get(id).await.expect("a read"), None);
        let told = |error: Error| error.to_string().replace(&id.to_string(), "ID");
        let unknown = "there is no instance ID";
        assert_eq!(b.history(id).await.map_err(told), Err(unknown.to_owned()));
        assert_eq!(b.inbox(id).await.map_err(told), Err(unknown.to_owned()));
        assert_eq!(b.explain(id).await.map_err(told), Err(unknown.to_owned()));
        assert_eq!(b.waiting(id).await.map_err(told), Err(unknown.to_owned()));
        assert_eq!(b.cancel(id).await.map_err(told), Err(unknown.to_owned()));
        assert_eq!(b.retry(id).await.map_err(told), Err(unknown.to_owned()));
        assert_eq!(b.pause(id).await.map_err(told), Err(unknown.to_owned()));
        assert_eq!(b.resume(id).await.map_err(told), Err(unknown.to_owned()));
        assert_eq!(b.fork(id, 1, |new| new).await.map_err(told), Err(unknown.to_owned()));
        assert_eq!(b.wait_end(id, SOON).await.map_err(told), Err(unknown.to_owned()));
        let sent = b.signal_raw(id, signal("s")).await.map_err(told);
        assert_eq!(sent, Err("no live instance ID to signal: it is unknown or has ended".to_owned()));
        let sent = b.signal_many([(id.into(), signal("s"))]).await.expect("answers");
        assert_eq!(sent, [Delivered::NoTarget]);
        let children = Filter { parent: Some(id), ..Filter::default() };
        assert!(b.list(children).await.expect("a read").instances.is_empty());
    }
    assert_eq!(kit.get(theirs).await, before, "and nothing of it was touched");
}

async fn lanes_and_queues_are_per_namespace(kit: Kit) {
    let worker = kit.worker("w").await;
    let [a, b] = ["a", "b"].map(|name| kit.client().in_namespace(name).expect("a good name"));
    let in_a = a.start_many([m().lane("l"), m().lane("l")]).await.expect("a start")[0].id();
    let in_b = b.start_many([m().lane("l"), m().lane("l")]).await.expect("a start")[0].id();
    let claimed: Vec<_> = kit.claim(worker, 10).await.iter().map(|row| row.id).collect();
    assert_eq!(claimed, [in_a, in_b], "one of each namespace's lane");
    let laneless = a.start_many([m()]).await.expect("a start")[0].id();
    b.start_many([m()]).await.expect("a start");
    b.pause_queue("default").await.expect("a brake");
    let claimed: Vec<_> = kit.claim(worker, 10).await.iter().map(|row| row.id).collect();
    assert_eq!(claimed, [laneless], "the brake is on in one namespace");
}

async fn a_worker_claims_only_from_the_namespaces_it_serves(kit: Kit) {
    let worker = kit.worker("w").await;
    for namespace in ["a", "b", "c"] {
        kit.client().in_namespace(namespace).expect("a good name").start_many([m()]).await.expect("a start");
    }
    let only = Namespaces::Only(vec!["c".to_owned(), "a".to_owned(), "empty".to_owned()]);
    assert_eq!(claim_in(&kit, worker, only.clone()).await, ["a", "c"]);
    assert!(claim_in(&kit, worker, only).await.is_empty());
    assert_eq!(claim_in(&kit, worker, Namespaces::All).await, ["b"]);
}

async fn a_namespace_named_twice_is_claimed_from_once(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert(m()).await;
    let twice = Namespaces::Only(vec!["default".to_owned(), "default".to_owned()]);
    assert_eq!(claim_in(&kit, worker, twice).await, ["default"], "nobody runs a step twice at once");
}

async fn an_engine_serves_only_its_namespaces(kit: Kit) {
    let builder = kit.engine().dyn_machine(Script::named("m", |_, _| Ok(done())));
    let only = builder.namespaces(Namespaces::Only(vec!["a".to_owned()])).start().await.expect("it starts");
    let mut ids = Vec::new();
    for namespace in ["b", "default", "a"] {
        let client = only.client().in_namespace(namespace).expect("a good name");
        ids.push(client.start_many([m()]).await.expect("a start")[0].id());
    }
    kit.until(ids[2], Status::Done).await;
    only.shutdown().await;
    assert_eq!((kit.status(ids[0]).await, kit.status(ids[1]).await), (Status::Runnable, Status::Runnable));
    let builder = kit.engine().dyn_machine(Script::named("m", |_, _| Ok(done())));
    let all = builder.namespaces(Namespaces::All).start().await.expect("it starts");
    kit.until(ids[0], Status::Done).await;
    kit.until(ids[1], Status::Done).await;
    all.shutdown().await;
}

struct Shop;

#[derive(Serialize, Deserialize)]
enum Order {
    Open,
}

impl Machine for Shop {
    const NAME: &'static str = "shop";
    type State = Order;
    type Output = ();

    async fn step(&self, _state: Order, _cx: &Context) -> StepResult<Self> {
        Ok(Outcome::done(()))
    }
}

fn in_statuses(statuses: &[Status]) -> KeyScope {
    KeyScope::In(statuses.to_vec())
}

async fn with_key(kit: &Kit, prefix: &str) -> Vec<dormouse::Instance> {
    let namespace = Some("default".to_owned());
    kit.list(Filter { namespace, key_prefix: Some(prefix.to_owned()), ..Filter::default() }).await
}

/// Checks that an instance failed because another holds its key, and says so.
async fn failed_for(kit: &Kit, id: InstanceId, holder: InstanceId) {
    let failed = kit.get(id).await;
    let error = failed.last_error.unwrap_or_default();
    assert_eq!(failed.status, Status::Failed, "{error}");
    assert!(error.contains(&format!("its key is taken by instance {holder}")), "{error}");
}

/// The namespaces of what a worker can claim.
async fn claim_in(kit: &Kit, worker: dormouse::WorkerId, namespaces: Namespaces) -> Vec<String> {
    let machines = [("m".to_owned(), 1)].into();
    let (queue, after) = ("default".to_owned(), Turns::default());
    let claim = Claim {
        worker,
        queue,
        namespaces,
        machines,
        after,
        later_than: None,
        places: usize::MAX,
        rows_max: 10,
    };
    let claimed = kit.store.claim(claim).await.expect("a claim").value;
    claimed.into_iter().map(|row| row.namespace).collect()
}
