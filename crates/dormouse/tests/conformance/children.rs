//! Children and barriers.

use std::time::Duration;

use dormouse::store::{Claimed, Commit, Filter, Namespaces, Receipt};
use dormouse::{EventKind, InstanceId, Json, NewInstance, Quorum, Spawn, Status, Transition, Wake, WorkerId};

use crate::kit::*;

suite![
    a_spawn_inserts_its_children_and_parks_in_one_commit,
    a_stale_spawn_inserts_no_child_and_leaves_the_parent_alone,
    a_spawn_by_a_worker_that_does_not_hold_the_parent_changes_nothing,
    a_spawn_whose_answer_was_lost_makes_no_second_set,
    a_spawning_step_that_crashed_makes_one_set_when_it_runs_again,
    a_spawn_consumes_the_signals_its_step_received,
    children_that_end_in_one_group_wake_the_parent_once,
    children_that_end_one_by_one_each_take_one_off,
    children_that_end_on_many_workers_at_once_wake_the_parent_once,
    a_child_that_ends_before_the_parents_worker_hears_of_the_spawn_wakes_it,
    a_stale_end_of_a_child_takes_nothing_off,
    failed_and_cancelled_children_release_their_slot,
    children_dropped_by_their_key_are_not_waited_for,
    a_spawn_that_inserts_nobody_runs_on_at_once,
    a_childs_signals_for_a_key_that_its_parent_holds_reach_the_parent,
    a_quorum_of_ends_wakes_the_parent_once_and_later_ends_change_nothing,
    a_quorum_of_more_than_there_are_waits_for_all,
    a_deadline_wakes_the_parent_with_the_children_so_far,
    each_round_has_its_own_barrier_and_its_own_children,
    a_replayed_step_sees_its_children_again,
    a_retried_child_does_not_take_a_second_one_off,
    six_thousand_children_fit_in_one_spawn,
    children_live_in_their_parents_namespace,
    children_can_spawn_children,
    children_and_outputs_come_in_the_order_of_their_spawning,
];

async fn a_spawn_inserts_its_children_and_parks_in_one_commit(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, spawn(vec![child(), child()], "join")).await;
    let row = kit.get(parent).await;
    assert_eq!((row.status, row.barrier, row.round), (Status::AwaitingChildren, Some(2), 1));
    assert_eq!((row.step.as_str(), row.attempt), ("join", 0));
    let children = children_of(&kit, parent).await;
    assert_eq!(children.len(), 2);
    for child in children {
        assert_eq!((kit.get(child).await.parent, kit.status(child).await), (Some(parent), Status::Runnable));
    }
    assert_eq!(kit.story(parent).await, [EventKind::Created, EventKind::ChildrenSpawned]);
}

async fn a_stale_spawn_inserts_no_child_and_leaves_the_parent_alone(kit: Kit) {
    let slow = kit.worker_with_lease("slow", Duration::from_secs(1)).await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(slow).await;
    kit.advance(Duration::from_secs(2));
    assert_eq!(kit.reap().await, 1);
    let before = kit.get(parent).await;
    let late = commit(&claimed, Transition::Spawn(spawn(vec![child(), child()], "join")));
    assert!(matches!(kit.commit(slow, late).await, Receipt::Stale));
    assert_eq!(kit.get(parent).await, before);
    assert!(children_of(&kit, parent).await.is_empty());
}

async fn a_spawn_by_a_worker_that_does_not_hold_the_parent_changes_nothing(kit: Kit) {
    let (holder, stranger) = (kit.worker("holder").await, kit.worker("stranger").await);
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(holder).await;
    let spawning = commit(&claimed, Transition::Spawn(spawn(vec![child()], "join")));
    assert!(matches!(kit.commit(stranger, spawning).await, Receipt::Stale));
    assert!(children_of(&kit, parent).await.is_empty());
}

async fn a_spawn_whose_answer_was_lost_makes_no_second_set(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let spawning = commit(&claimed, Transition::Spawn(spawn(vec![child(), child()], "join")));
    assert!(matches!(kit.commit(worker, spawning.clone()).await, Receipt::Released));
    assert!(matches!(kit.commit(worker, spawning.clone()).await, Receipt::Stale));
    assert_eq!((children_of(&kit, parent).await.len(), kit.get(parent).await.barrier), (2, Some(2)));
    end_child(&kit, worker, done()).await;
    end_child(&kit, worker, done()).await;
    assert_eq!(kit.claim_one(worker).await.id, parent);
    let again = kit.commit(worker, spawning).await;
    assert!(matches!(again, Receipt::Stale), "nor when the same worker has gone on with it");
    assert_eq!(children_of(&kit, parent).await.len(), 2);
}

async fn a_spawning_step_that_crashed_makes_one_set_when_it_runs_again(kit: Kit) {
    let mortal = kit.worker_with_lease("mortal", Duration::from_secs(1)).await;
    let heir = kit.worker("heir").await;
    let parent = kit.insert(m()).await;
    let first = kit.claim_one(mortal).await;
    kit.advance(Duration::from_secs(2));
    assert_eq!(kit.reap().await, 1);
    let second = kit.claim_one(heir).await;
    let set = || Transition::Spawn(spawn(vec![child(), child(), child()], "join"));
    assert!(matches!(kit.commit(heir, commit(&second, set())).await, Receipt::Released));
    assert!(matches!(kit.commit(mortal, commit(&first, set())).await, Receipt::Stale));
    assert_eq!((children_of(&kit, parent).await.len(), kit.get(parent).await.round), (3, 1));
}

async fn a_spawn_consumes_the_signals_its_step_received(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "spawn"))).await;
    kit.deliver(parent, signal("go")).await;
    kit.deliver(parent, signal("other")).await;
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, Transition::Spawn(spawn(vec![child()], "join")))).await;
    let left = kit.client().inbox(parent).await.expect("a read");
    assert_eq!(left.iter().map(|signal| signal.name.as_str()).collect::<Vec<_>>(), ["other"]);
}

async fn children_that_end_in_one_group_wake_the_parent_once(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, spawn(vec![child(); 10], "join")).await;
    let ends = claim_children(&kit, worker, 10).await.iter().map(|c| commit(c, done())).collect();
    let receipts = kit.commit_many(worker, ends).await;
    assert!(receipts.iter().all(|receipt| matches!(receipt, Receipt::Released)));
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake, woken.at.step.as_ref()), (parent, Some(Wake::Children), "join"));
    assert_eq!((woken.attempt, woken.children.len()), (0, 10));
    assert_eq!(kit.story(parent).await, JOINED);
}

async fn children_that_end_one_by_one_each_take_one_off(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, spawn(vec![child(); 5], "join")).await;
    for left in (0..5).rev() {
        assert_eq!(kit.status(parent).await, Status::AwaitingChildren);
        end_child(&kit, worker, done()).await;
        assert_eq!(kit.get(parent).await.barrier, Some(left));
    }
    assert_eq!(kit.status(parent).await, Status::Runnable);
    assert_eq!(kit.story(parent).await, JOINED);
}

async fn children_that_end_on_many_workers_at_once_wake_the_parent_once(kit: Kit) {
    for round in 0..10 {
        let first = kit.worker(&format!("first-{round}")).await;
        let parent = parent_of(&kit, first, spawn(vec![child(); 24], "join")).await;
        let mut committing = Vec::new();
        for name in 0..4 {
            let worker = kit.worker(&format!("{round}-{name}")).await;
            for claimed in claim_children(&kit, worker, 6).await {
                let store = kit.store.clone();
                let end = commit(&claimed, done());
                committing.push(tokio::spawn(async move { store.commit(worker, [end].into()).await }));
            }
        }
        assert_eq!(committing.len(), 24);
        for commit in committing {
            let receipts = commit.await.expect("no panic").expect("a commit").value;
            assert!(matches!(receipts[..], [Receipt::Released]));
        }
        assert_eq!(kit.story(parent).await, JOINED);
        let woken = kit.claim(first, 10).await;
        assert_eq!(woken.iter().map(|claimed| claimed.id).collect::<Vec<_>>(), [parent]);
        kit.commit(first, commit(&woken[0], done())).await;
    }
}

async fn a_child_that_ends_before_the_parents_worker_hears_of_the_spawn_wakes_it(kit: Kit) {
    let (busy, quick) = (kit.worker("busy").await, kit.worker("quick").await);
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(busy).await;
    let spawning = commit(&claimed, Transition::Spawn(spawn(vec![child()], "join")));
    let unheard = tokio::spawn({
        let store = kit.store.clone();
        async move { store.commit(busy, [spawning].into()).await }
    });
    let claimed = loop {
        if let Some(claimed) = claim_children(&kit, quick, 1).await.pop() {
            break claimed;
        }
        tokio::task::yield_now().await;
    };
    kit.commit(quick, commit(&claimed, done())).await;
    let woken = kit.claim_one(quick).await;
    assert_eq!((woken.id, woken.wake), (parent, Some(Wake::Children)));
    let receipts = unheard.await.expect("no panic").expect("a commit").value;
    assert!(matches!(receipts[..], [Receipt::Released]));
}

async fn a_stale_end_of_a_child_takes_nothing_off(kit: Kit) {
    let worker = kit.worker("w").await;
    let slow = kit.worker_with_lease("slow", Duration::from_secs(1)).await;
    let parent = parent_of(&kit, worker, spawn(vec![child(), child()], "join")).await;
    let late = claim_children(&kit, slow, 1).await.remove(0);
    kit.advance(Duration::from_secs(2));
    assert_eq!(kit.reap().await, 1);
    let again = claim_children(&kit, worker, 1).await.remove(0);
    assert_eq!(again.id, late.id, "it is back in its old place");
    assert!(matches!(kit.commit(slow, commit(&late, done())).await, Receipt::Stale));
    assert_eq!(kit.get(parent).await.barrier, Some(2));
    assert!(matches!(kit.commit(worker, commit(&again, done())).await, Receipt::Released));
    assert!(matches!(kit.commit(slow, commit(&late, done())).await, Receipt::Stale));
    assert_eq!(kit.get(parent).await.barrier, Some(1));
}

async fn failed_and_cancelled_children_release_their_slot(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, spawn(vec![child(), child(), child()], "join")).await;
    let children = children_of(&kit, parent).await;
    end_child(&kit, worker, Transition::Done { output: Json::from(serde_json::json!(7)) }).await;
    end_child(&kit, worker, fail("out of stock")).await;
    assert_eq!(kit.get(parent).await.barrier, Some(1));
    kit.client().cancel(children[2]).await.expect("a live child");
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake), (parent, Some(Wake::Children)));
    let seen: Vec<_> = woken.children.iter().map(|c| (c.id, c.machine.as_str(), c.status)).collect();
    assert_eq!(
        seen,
        [
            (children[0], "c", Status::Done),
            (children[1], "c", Status::Failed),
            (children[2], "c", Status::Cancelled)
        ]
    );
    assert_eq!(woken.children[0].output::<u32>().expect("a number"), Some(7));
    assert_eq!(woken.children[1].error.as_deref(), Some("out of stock"));
}

async fn children_dropped_by_their_key_are_not_waited_for(kit: Kit) {
    let worker = kit.worker("w").await;
    let outsider = kit.insert(NewInstance::named("elsewhere", 1, at("start")).key("taken")).await;
    let children = vec![child().key("taken"), child().key("twin"), child().key("twin"), child()];
    let parent = parent_of(&kit, worker, spawn(children, "join")).await;
    assert_eq!(kit.get(parent).await.barrier, Some(2));
    assert_eq!(children_of(&kit, parent).await.len(), 2);
    assert_eq!(kit.get(outsider).await.parent, None);
    let spawned = kit.history(parent).await.pop().expect("an event").data.expect("what was spawned");
    let spawned: serde_json::Value = spawned.decode("event").expect("an object");
    assert_eq!(spawned["dropped"], 2, "{spawned}");
    end_child(&kit, worker, done()).await;
    end_child(&kit, worker, done()).await;
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.children.len()), (parent, 2));
}

async fn a_spawn_that_inserts_nobody_runs_on_at_once(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert(NewInstance::named("elsewhere", 1, at("start")).key("taken")).await;
    for children in [vec![], vec![child().key("taken")]] {
        let spawning = Spawn { timeout: Some(Duration::from_secs(60).into()), ..spawn(children, "join") };
        let parent = parent_of(&kit, worker, spawning).await;
        let row = kit.get(parent).await;
        assert_eq!((row.status, row.wake_at), (Status::Runnable, None), "no deadline is left behind");
        let woken = kit.claim_one(worker).await;
        assert_eq!((woken.id, woken.wake, woken.children.len()), (parent, Some(Wake::Children), 0));
        kit.commit(worker, commit(&woken, done())).await;
    }
}

async fn a_childs_signals_for_a_key_that_its_parent_holds_reach_the_parent(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m().key("mine")).await;
    let claimed = kit.claim_one(worker).await;
    let children = vec![child().key("mine").signal(signal("hello"))];
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(children, "wait")))).await;
    assert_eq!(kit.get(parent).await.inbox, 1);
    let woken = kit.claim_one(worker).await;
    assert_eq!(woken.inbox.len(), 1);
    kit.commit(worker, commit(&woken, wait_for(&["hello"], "greet"))).await;
    let greeted = kit.claim_one(worker).await;
    kit.commit(worker, commit(&greeted, next("end"))).await;
    assert_eq!(kit.get(parent).await.inbox, 0);
}

async fn a_quorum_of_ends_wakes_the_parent_once_and_later_ends_change_nothing(kit: Kit) {
    let worker = kit.worker("w").await;
    let quorum = Spawn { quorum: Some(Quorum::Ended(2)), ..spawn(vec![child(); 4], "join") };
    let parent = parent_of(&kit, worker, quorum).await;
    end_child(&kit, worker, done()).await;
    assert_eq!(kit.status(parent).await, Status::AwaitingChildren);
    end_child(&kit, worker, fail("an end like any other")).await;
    let woken = kit.claim_one(worker).await;
    let statuses: Vec<_> = woken.children.iter().map(|child| child.status).collect();
    assert_eq!(statuses, [Status::Done, Status::Failed, Status::Runnable, Status::Runnable]);
    assert_eq!((woken.id, woken.wake), (parent, Some(Wake::Children)));
    let (row, history) = (kit.get(parent).await, kit.history(parent).await);
    end_child(&kit, worker, done()).await;
    assert_eq!((kit.get(parent).await, kit.history(parent).await), (row, history.clone()));
    kit.commit(worker, commit(&woken, wait_for(&["never"], "end"))).await;
    let row = kit.get(parent).await;
    end_child(&kit, worker, done()).await;
    assert_eq!(kit.get(parent).await, row, "not even when it is parked on something else");
    assert_eq!(kit.history(parent).await.len(), history.len() + 1);
}

async fn a_quorum_of_more_than_there_are_waits_for_all(kit: Kit) {
    let worker = kit.worker("w").await;
    let quorum = Spawn { quorum: Some(Quorum::Ended(9)), ..spawn(vec![child(), child()], "join") };
    let parent = parent_of(&kit, worker, quorum).await;
    end_child(&kit, worker, done()).await;
    assert_eq!(kit.status(parent).await, Status::AwaitingChildren);
    end_child(&kit, worker, done()).await;
    assert_eq!(kit.status(parent).await, Status::Runnable);
}

async fn a_deadline_wakes_the_parent_with_the_children_so_far(kit: Kit) {
    let worker = kit.worker("w").await;
    let timeout = Some(Duration::from_secs(60).into());
    let parent = parent_of(&kit, worker, Spawn { timeout, ..spawn(vec![child(); 3], "join") }).await;
    end_child(&kit, worker, done()).await;
    kit.advance(Duration::from_secs(59));
    assert_eq!(kit.due().await, 0);
    kit.advance(Duration::from_secs(1));
    assert_eq!(kit.due().await, 1);
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake, woken.attempt), (parent, Some(Wake::Timeout), 0));
    let statuses: Vec<_> = woken.children.iter().map(|child| child.status).collect();
    assert_eq!(statuses, [Status::Done, Status::Runnable, Status::Runnable]);
    let row = kit.get(parent).await;
    end_child(&kit, worker, done()).await;
    end_child(&kit, worker, done()).await;
    assert_eq!(kit.get(parent).await, row, "later ends change nothing");
    use EventKind::*;
    assert_eq!(kit.story(parent).await, [Created, ChildrenSpawned, ChildrenTimeout]);
}

async fn each_round_has_its_own_barrier_and_its_own_children(kit: Kit) {
    let worker = kit.worker("w").await;
    let first = Spawn { quorum: Some(Quorum::Ended(1)), ..spawn(vec![child(), child()], "again") };
    let parent = parent_of(&kit, worker, first).await;
    let first_children = children_of(&kit, parent).await;
    end_child(&kit, worker, done()).await;
    let woken = kit.claim_one(worker).await;
    let second = vec![child().priority(1), child().priority(1)];
    kit.commit(worker, commit(&woken, Transition::Spawn(spawn(second, "join")))).await;
    assert_eq!(kit.get(parent).await.round, 2);

    let late = end_child(&kit, worker, done()).await;
    assert_eq!(late, first_children[1], "the one of the first round, by its priority");
    let row = kit.get(parent).await;
    assert_eq!((row.status, row.barrier), (Status::AwaitingChildren, Some(2)), "not this round's");
    let ended = [end_child(&kit, worker, done()).await, end_child(&kit, worker, done()).await];
    let woken = kit.claim_one(worker).await;
    let seen: Vec<_> = woken.children.iter().map(|child| child.id).collect();
    assert_eq!((woken.id, seen.as_slice()), (parent, &ended[..]));
}

async fn a_replayed_step_sees_its_children_again(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, spawn(vec![child(), child()], "join")).await;
    end_child(&kit, worker, done()).await;
    end_child(&kit, worker, done()).await;
    for attempt in 0..2 {
        let woken = kit.claim_one(worker).await;
        assert_eq!((woken.id, woken.wake, woken.attempt), (parent, Some(Wake::Children), attempt));
        assert_eq!(woken.children.len(), 2);
        kit.commit(worker, commit(&woken, replay("join", Duration::ZERO))).await;
    }
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, next("end"))).await;
    assert!(kit.claim_one(worker).await.children.is_empty(), "the round is over once a step progressed");
}

async fn a_retried_child_does_not_take_a_second_one_off(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, spawn(vec![child(), child()], "join")).await;
    let failed = end_child(&kit, worker, fail("boom")).await;
    assert_eq!(kit.get(parent).await.barrier, Some(1));
    kit.client().retry(failed).await.expect("a failed child can be retried");
    let both = claim_children(&kit, worker, 2).await;
    let retried = both.iter().find(|claimed| claimed.id == failed).expect("it runs again");
    kit.commit(worker, commit(retried, done())).await;
    let row = kit.get(parent).await;
    assert_eq!((row.status, row.barrier), (Status::AwaitingChildren, Some(1)));
    let other = both.iter().find(|claimed| claimed.id != failed).expect("the other one");
    kit.commit(worker, commit(other, done())).await;
    let woken = kit.claim_one(worker).await;
    assert!(woken.children.iter().all(|child| child.status == Status::Done), "it sees the retry's end");
}

async fn six_thousand_children_fit_in_one_spawn(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, spawn(vec![child(); 6000], "join")).await;
    assert_eq!(kit.get(parent).await.barrier, Some(6000));
    let claimed = claim_children(&kit, worker, 6000).await;
    let ends: Vec<Commit> = claimed.iter().map(|child| commit(child, done())).collect();
    for group in ends.chunks(1024) {
        assert_eq!(kit.status(parent).await, Status::AwaitingChildren);
        kit.commit_many(worker, group.to_vec()).await;
    }
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.children.len()), (parent, 6000));
    assert_eq!(kit.story(parent).await, JOINED);
}

async fn children_live_in_their_parents_namespace(kit: Kit) {
    let parent = Script::named("m", |at, _| {
        Ok(match at.step.as_ref() {
            "start" => Transition::Spawn(spawn(vec![child().key("same")], "join")),
            _ => done(),
        })
    });
    let builder = kit.engine().namespaces(Namespaces::All).dyn_machine(parent);
    let engine = builder.dyn_machine(Script::named("c", |_, _| Ok(done()))).start().await.expect("it starts");
    // The key is taken in the default namespace, and that is nobody's business in the other.
    kit.insert(NewInstance::named("elsewhere", 1, at("start")).key("same")).await;
    let tenant = engine.client().in_namespace("tenant").expect("a good name");
    let parent = tenant.start_many([m()]).await.expect("a start")[0].id();
    kit.until(parent, Status::Done).await;
    let children = kit.list(Filter { parent: Some(parent), ..Filter::default() }).await;
    assert_eq!(children.len(), 1);
    assert_eq!((children[0].namespace.as_str(), children[0].status), ("tenant", Status::Done));
    engine.shutdown().await;
}

async fn children_can_spawn_children(kit: Kit) {
    let engine = kit
        .run(|place, cx| {
            let depth: u32 = place.state.decode("depth").expect("a number");
            let below = |depth: u32| NewInstance::named("m", 1, at_with("start", serde_json::json!(depth)));
            let leaves = |count: u32| Transition::Done { output: Json::from(serde_json::json!(count)) };
            Ok(match (place.step.as_ref(), depth) {
                ("start", 0) => leaves(1),
                ("start", _) => {
                    let at = at_with("join", serde_json::json!(depth));
                    Transition::Spawn(Spawn { at, ..spawn(vec![below(depth - 1); 3], "join") })
                }
                _ => leaves(cx.outputs::<u32>().expect("numbers").iter().sum()),
            })
        })
        .await;
    let root = NewInstance::named("m", 1, at_with("start", serde_json::json!(3)));
    let id = engine.client().start_many([root]).await.expect("a start")[0].id();
    assert_eq!(kit.until(id, Status::Done).await.output.expect("an output").as_str(), "27");
    assert_eq!(kit.stats().await.count(Status::Done), 1 + 3 + 9 + 27);
    engine.shutdown().await;
}

async fn children_and_outputs_come_in_the_order_of_their_spawning(kit: Kit) {
    let parent = Script::named("m", |at, cx| {
        // The last one spawned is the first one to run.
        let numbered = |n: i32| {
            let place = at_with("start", serde_json::json!(n));
            NewInstance::named("c", 1, place).priority(-n).key(format!("child-{n}"))
        };
        Ok(match at.step.as_ref() {
            "start" => Transition::Spawn(spawn((0..5).map(numbered).collect(), "join")),
            _ => {
                let keys: Vec<_> = cx.children().iter().map(|child| child.key.clone()).collect();
                let outputs: Vec<i32> = cx.outputs().expect("numbers");
                Transition::Done { output: Json::from(serde_json::json!([keys, outputs])) }
            }
        })
    });
    let child = Script::named("c", |at, _| {
        let number: i32 = at.state.decode("number").expect("a number");
        Ok(if number == 2 { fail("no output") } else { Transition::Done { output: at.state.clone() } })
    });
    let builder = kit.engine().queue("default", 1).dyn_machine(parent).dyn_machine(child);
    let engine = builder.start().await.expect("it starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    let output = kit.until(id, Status::Done).await.output.expect("an output");
    let expected = r#"[["child-0","child-1","child-2","child-3","child-4"],[0,1,3,4]]"#;
    assert_eq!(output.as_str(), expected, "a failed child has no output");
    engine.shutdown().await;
}

const JOINED: [EventKind; 3] = [EventKind::Created, EventKind::ChildrenSpawned, EventKind::ChildrenJoined];

/// A child of another machine, so that a claim can tell it from its parent.
fn child() -> NewInstance {
    NewInstance::named("c", 1, at("start"))
}

/// Inserts an instance and commits its spawn.
async fn parent_of(kit: &Kit, worker: WorkerId, spawn: Spawn) -> InstanceId {
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    assert_eq!(claimed.id, id);
    let receipt = kit.commit(worker, commit(&claimed, Transition::Spawn(spawn))).await;
    assert!(matches!(receipt, Receipt::Released));
    id
}

async fn claim_children(kit: &Kit, worker: WorkerId, rows_max: usize) -> Vec<Claimed> {
    kit.claim_from(worker, "default", &[("c", 1)], rows_max).await
}

/// Claims the next child and ends it.
async fn end_child(kit: &Kit, worker: WorkerId, end: Transition) -> InstanceId {
    let claimed = claim_children(kit, worker, 1).await.pop().expect("a child that can run");
    assert!(matches!(kit.commit(worker, commit(&claimed, end)).await, Receipt::Released));
    claimed.id
}

/// An instance's children, in the order of their spawning.
async fn children_of(kit: &Kit, parent: InstanceId) -> Vec<InstanceId> {
    let mut children: Vec<_> = kit
        .list(Filter { parent: Some(parent), ..Filter::default() })
        .await
        .into_iter()
        .map(|c| c.id)
        .collect();
    children.sort_unstable();
    children
}
