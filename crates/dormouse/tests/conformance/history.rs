//! History and collection.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Bounds, Collect, Collected, Events, Filter};
use dormouse::{
    At, Error, EventKind, History, InstanceId, Json, NewSignal, Retention, Spawn, Status, Transition, Wake,
    WorkerId,
};
use serde_json::json;

use crate::kit::*;

suite![
    every_transition_appends_one_event_with_the_state_after_it,
    run_ahead_steps_are_events_like_any_other,
    a_batch_appends_one_event_for_each_of_its_outcomes,
    a_stale_commit_a_pause_and_a_kept_signal_append_nothing,
    an_event_tells_what_happened,
    history_can_be_read_in_pages,
    a_machine_without_history_writes_none_and_works,
    an_engine_without_history_writes_none_for_children_either,
    old_events_go_and_the_state_stays_readable,
    old_events_go_in_bounded_batches_and_every_one_left_tells_its_state,
    ended_instances_go_after_their_retention_with_history_and_inbox,
    ended_instances_go_in_bounded_batches,
    live_instances_are_never_collected,
    a_child_stays_until_its_parent_has_joined_it,
    a_parent_that_fails_and_is_retried_still_sees_its_children,
    ids_are_not_used_again_after_a_collection,
    an_engine_collects_by_itself,
];

async fn every_transition_appends_one_event_with_the_state_after_it(kit: Kit) {
    let worker = kit.worker("w").await;
    let second = Duration::from_secs(1);
    let id = kit.insert(m_at(numbered("a", 0)).start_at(second)).await;
    kit.advance(second * 2);
    kit.due().await;
    let mortal = kit.worker_with_lease("mortal", second).await;
    kit.claim_one(mortal).await;
    kit.advance(second * 2);
    kit.reap().await;
    let step = async |transition: Transition| {
        let claimed = kit.claim_one(worker).await;
        assert_eq!(claimed.id, id);
        kit.commit(worker, commit(&claimed, transition)).await;
    };
    step(Transition::Next { at: numbered("b", 1), ahead: true }).await;
    step(Transition::Replay { at: numbered("b", 2), delay: second, error: None }).await;
    kit.advance(second);
    kit.due().await;
    step(Transition::Replay { at: numbered("b", 3), delay: Duration::ZERO, error: None }).await;
    step(Transition::Sleep { at: numbered("c", 4), until: second.into() }).await;
    kit.advance(second);
    kit.due().await;
    let names = || vec!["go".to_owned()];
    step(Transition::Await { at: numbered("d", 5), names: names(), timeout: None }).await;
    kit.deliver(id, signal("go")).await;
    step(Transition::Await { at: numbered("e", 6), names: names(), timeout: Some(second.into()) }).await;
    kit.advance(second);
    kit.due().await;
    let child = || vec![NewInstance::named("c", 1, at("start"))];
    step(Transition::Spawn(Spawn { at: numbered("f", 7), ..spawn(child(), "f") })).await;
    let claimed = kit.claim_from(worker, "default", &[("c", 1)], 1).await.remove(0);
    kit.commit(worker, commit(&claimed, done())).await;
    let timeout = Some(second.into());
    step(Transition::Spawn(Spawn { at: numbered("g", 8), timeout, ..spawn(child(), "g") })).await;
    kit.advance(second);
    kit.due().await;
    step(fail("boom")).await;
    kit.client().retry(id).await.expect("it has failed");
    kit.client().cancel(id).await.expect("it is live");
    kit.client().retry_raw(id, numbered("h", 9)).await.expect("it is cancelled");
    step(done()).await;

    kit.story(id).await;
    let told: Vec<_> = kit
        .history(id)
        .await
        .into_iter()
        .map(|event| {
            let state: serde_json::Value = event.state.decode("state").expect("JSON");
            (event.kind, event.step, state["n"].as_u64().expect("a number"))
        })
        .collect();
    use EventKind::*;
    let expected = [
        (Created, "a", 0),
        (TimerFired, "a", 0),
        (Reaped, "a", 0),
        (StepCompleted, "b", 1),
        (StepRetried, "b", 2),
        (TimerFired, "b", 2),
        (StepRetried, "b", 3),
        (StepCompleted, "c", 4),
        (TimerFired, "c", 4),
        (SignalWaiting, "d", 5),
        (SignalReceived, "d", 5),
        (SignalWaiting, "e", 6),
        (SignalTimeout, "e", 6),
        (ChildrenSpawned, "f", 7),
        (ChildrenJoined, "f", 7),
        (ChildrenSpawned, "g", 8),
        (ChildrenTimeout, "g", 8),
        (Failed, "g", 8),
        (Retried, "g", 8),
        (Cancelled, "g", 8),
        (Retried, "h", 9),
        (Done, "h", 9),
    ]
    .map(|(kind, step, n)| (kind, step.to_owned(), n));
    assert_eq!(told, expected);
}

async fn run_ahead_steps_are_events_like_any_other(kit: Kit) {
    let engine = kit
        .run(|at, _| {
            let n: u32 = at.state.decode("number").expect("a number");
            Ok(if n == 5 {
                done()
            } else {
                Transition::Next { at: at_with("start", json!(n + 1)), ahead: true }
            })
        })
        .await;
    let id = engine.client().start_many([m_at(at_with("start", json!(0)))]).await.expect("a start")[0].id();
    kit.until(id, Status::Done).await;
    let states: Vec<_> = kit.history(id).await.iter().map(|event| event.state.to_string()).collect();
    assert_eq!(states, ["0", "1", "2", "3", "4", "5", "5"]);
    kit.story(id).await;
    engine.shutdown().await;
}

async fn a_batch_appends_one_event_for_each_of_its_outcomes(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert_many(vec![m(); 4]).await;
    let claimed = kit.claim(worker, 4).await;
    let outcomes = [next("end"), done(), fail("boom"), wait_for(&["go"], "end")];
    let commits = claimed.iter().zip(outcomes).map(|(row, outcome)| commit(row, outcome)).collect();
    kit.commit_many(worker, commits).await;
    use EventKind::*;
    for (row, kind) in claimed.iter().zip([StepCompleted, Done, Failed, SignalWaiting]) {
        assert_eq!(kit.story(row.id).await, [Created, kind]);
    }
}

async fn a_stale_commit_a_pause_and_a_kept_signal_append_nothing(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "end"))).await;
    let before = kit.history(id).await;
    kit.commit(worker, commit(&claimed, done())).await;
    kit.client().pause(id).await.expect("a live instance");
    kit.client().resume(id).await.expect("a live instance");
    kit.deliver(id, signal("other")).await;
    assert_eq!(kit.history(id).await, before);
    assert_eq!(kit.get(id).await.seq, 2);
}

async fn an_event_tells_what_happened(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_until(&["b", "a"], "end", Duration::from_secs(60)))).await;
    kit.advance(Duration::from_secs(1));
    let paid = NewSignal::new("a", Json::from(json!({"amount": 7}))).dedup("evt-1");
    kit.deliver(id, paid).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, fail("boom"))).await;
    let history = kit.history(id).await;
    let data = |index: usize| -> serde_json::Value {
        history[index].data.as_ref().expect("more to tell").decode("data").expect("JSON")
    };
    assert_eq!(data(1), json!({"names": ["a", "b"], "until": "2030-01-01T00:01:00Z"}));
    let received = data(2);
    assert_eq!(
        (&received["name"], &received["payload"], &received["dedup_key"]),
        (&json!("a"), &json!({"amount": 7}), &json!("evt-1"))
    );
    assert_eq!(data(3), json!({"error": "boom"}));
    assert_eq!(history[2].at, "2030-01-01T00:00:01Z".parse().expect("a moment"));
}

async fn history_can_be_read_in_pages(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = steps(&kit, worker, 9).await;
    let all = kit.history(id).await;
    let mut paged = Vec::new();
    loop {
        let after = Events::After(paged.len() as u64);
        let page = kit.store.history(id, after, Bounds::rows(4)).await.expect("a page");
        paged.extend(page.items);
        if !page.more {
            break;
        }
        assert_eq!(paged.len() % 4, 0);
    }
    assert_eq!((paged.len(), paged), (10, all));
}

async fn a_machine_without_history_writes_none_and_works(kit: Kit) {
    let engine = kit.engine().machine(Quiet).start().await.expect("it starts");
    let id = engine.client().start::<Quiet>(Whisper::Ask).await.expect("a start");
    kit.until(id, Status::AwaitingSignal).await;
    engine.client().signal_raw(id, signal("go")).await.expect("a live target");
    let ended = kit.until(id, Status::Done).await;
    assert_eq!(ended.output, Some(Json::from(json!(1))), "it received its signal");
    // created, waiting, received, next, done: they are counted all the same.
    assert_eq!((ended.seq, kit.history(id).await.len()), (5, 0));
    let refused = engine.client().fork(id, 1, |new| new).await.expect_err("there is no event");
    assert!(matches!(refused, Error::NoEvent { .. }), "{refused}");
    engine.shutdown().await;
}

async fn an_engine_without_history_writes_none_for_children_either(kit: Kit) {
    let parent = Script::named("m", |at, cx| {
        Ok(match at.step.as_ref() {
            "start" => {
                Transition::Spawn(spawn(vec![NewInstance::named("c", 1, at_with("go", json!(1)))], "join"))
            }
            _ => Transition::Done { output: Json::from(json!(cx.children().len())) },
        })
    });
    let child = Script::named("c", |at, _| Ok(if at.step == "go" { next("end") } else { done() }));
    let builder = kit.engine().history(History::Off).dyn_machine(parent).dyn_machine(child);
    let engine = builder.start().await.expect("it starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    assert_eq!(kit.until(id, Status::Done).await.output, Some(Json::from(json!(1))));
    for instance in kit.list(Filter::default()).await {
        assert!(instance.seq > 1);
        assert!(kit.history(instance.id).await.is_empty(), "{}", instance.machine);
    }
    engine.shutdown().await;
}

async fn old_events_go_and_the_state_stays_readable(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = steps(&kit, worker, 3).await;
    let claimed = kit.claim_one(worker).await;
    let names = vec!["go".to_owned()];
    let parked = Transition::Await { at: numbered("wait", 4), names, timeout: None };
    kit.commit(worker, commit(&claimed, parked)).await;
    kit.advance(Duration::from_secs(3600));
    kit.deliver(id, signal("go")).await;
    let before = kit.history(id).await;
    let collected = collect_events(&kit, Duration::from_secs(60), 0, 100).await;
    assert_eq!((collected.events, collected.events_next), (4, None));
    let after = kit.history(id).await;
    assert_eq!(after, before[4..], "the last that tells the state, and what came since");
    assert_eq!((after[1].kind, after[1].state.as_str()), (EventKind::SignalReceived, r#"{"n":4}"#));
    let refused = kit.client().fork(id, 1, |new| new).await.expect_err("it was pruned");
    assert!(matches!(refused, Error::NoEvent { .. }), "{refused}");
    let fork = kit.client().fork(id, 6, |new| new).await.expect("it is still there");
    assert_eq!(kit.get(fork).await.state.as_str(), r#"{"n":4}"#);
}

async fn old_events_go_in_bounded_batches_and_every_one_left_tells_its_state(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m_at(numbered("a", 0))).await;
    for n in 1..6 {
        let claimed = kit.claim_one(worker).await;
        let names = vec!["go".to_owned()];
        let parked = Transition::Await { at: numbered("a", n), names, timeout: None };
        kit.commit(worker, commit(&claimed, parked)).await;
        kit.deliver(id, signal("go")).await;
    }
    let all = kit.history(id).await;
    kit.advance(Duration::from_secs(3600));
    // A sweep may leave behind what the next one takes.
    for _sweep in 0..3 {
        let mut after = Some(0);
        while let Some(from) = after {
            let collected = collect_events(&kit, Duration::from_secs(60), from, 3).await;
            assert!(collected.events <= 3);
            after = collected.events_next;
            for event in kit.history(id).await {
                assert_eq!(event, all[event.seq as usize - 1]);
            }
        }
    }
    assert_eq!(kit.history(id).await, all[all.len() - 2..], "the last state and the wake that followed it");
}

async fn ended_instances_go_after_their_retention_with_history_and_inbox(kit: Kit) {
    let worker = kit.worker("w").await;
    let ended = [
        end_with(&kit, worker, done()).await,
        end_with(&kit, worker, fail("boom")).await,
        kit.insert(m()).await,
    ];
    kit.deliver(ended[2], signal("unread").dedup("1")).await;
    kit.client().cancel(ended[2]).await.expect("a live instance");
    kit.advance(Duration::from_secs(60));
    let collect = |age_s| {
        let client = kit.client();
        async move { client.collect(Duration::from_secs(age_s)).await.expect("a collection").instances }
    };
    assert_eq!(collect(61).await, 0, "not yet");
    assert_eq!(collect(60).await, 3);
    for id in ended {
        assert!(kit.client().get(id).await.expect("a read").is_none());
        assert!(
            kit.store
                .history(id, Events::After(0), Bounds::rows(100))
                .await
                .expect("a read")
                .items
                .is_empty()
        );
        assert!(kit.store.inbox(id, None, Bounds::rows(1000)).await.expect("a read").items.is_empty());
    }
}

async fn ended_instances_go_in_bounded_batches(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert_many(vec![m(); 300]).await;
    let ends = kit.claim(worker, 300).await.iter().map(|row| commit(row, done())).collect();
    kit.commit_many(worker, ends).await;
    kit.advance(Duration::from_secs(60));
    let batch = Collect {
        namespace: None,
        ended_for: Some(Duration::ZERO),
        events_for: None,
        events_after: 0,
        rows_max: 10,
    };
    assert_eq!(kit.store.collect(batch).await.expect("a batch").instances, 10);
    assert_eq!(kit.client().collect(Duration::ZERO).await.expect("a collection").instances, 290);
    assert!(kit.list(Filter::default()).await.is_empty());
}

async fn live_instances_are_never_collected(kit: Kit) {
    let worker = kit.worker("w").await;
    let long = Duration::from_secs(1_000_000);
    let child = vec![NewInstance::named("c", 1, at("start"))];
    let outcomes = [
        next("end"),
        sleep("end", long),
        wait_until(&["go"], "end", long),
        Transition::Spawn(spawn(child, "end")),
    ];
    for outcome in outcomes {
        let id = kit.insert(m().priority(-1)).await;
        let claimed = kit.claim_one(worker).await;
        assert_eq!(claimed.id, id);
        kit.commit(worker, commit(&claimed, outcome)).await;
        kit.client().pause(id).await.expect("a live instance");
    }
    let retried = end_with(&kit, worker, fail("boom")).await;
    kit.advance(Duration::from_secs(1000));
    kit.client().retry(retried).await.expect("it has failed");
    assert_eq!(kit.client().collect(Duration::ZERO).await.expect("a collection").instances, 0);
    assert_eq!(kit.list(Filter::default()).await.len(), 6);
}

async fn a_child_stays_until_its_parent_has_joined_it(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let children = vec![NewInstance::named("c", 1, at("start")); 2];
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(children, "join")))).await;
    let claimed = kit.claim_from(worker, "default", &[("c", 1)], 2).await;
    let collect_all = async || {
        kit.advance(Duration::from_secs(60));
        kit.client().collect(Duration::ZERO).await.expect("a collection").instances
    };
    kit.commit(worker, commit(&claimed[0], done())).await;
    assert_eq!(collect_all().await, 0, "its parent is parked on it");
    kit.commit(worker, commit(&claimed[1], done())).await;
    assert_eq!(collect_all().await, 0, "its parent has not looked yet");
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.children.len()), (parent, 2));
    assert_eq!(collect_all().await, 0, "its parent may be looking, and may crash and look again");
    kit.commit(worker, commit(&woken, done())).await;
    assert_eq!(collect_all().await, 3, "now nobody will");
}

async fn a_parent_that_fails_and_is_retried_still_sees_its_children(kit: Kit) {
    let retention = Duration::from_secs(7 * 24 * 3600);
    let collect = async || kit.client().collect(retention).await.expect("a collection").instances;
    let worker = kit.worker("w").await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let children = vec![NewInstance::named("c", 1, at("start")); 2];
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(children, "join")))).await;
    for child in kit.claim_from(worker, "default", &[("c", 1)], 2).await {
        kit.commit(worker, commit(&child, done())).await;
    }
    // The children are past the retention when the step that joins them fails.
    kit.advance(retention + Duration::from_secs(60));
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, fail("a bug in the join"))).await;
    assert_eq!(collect().await, 0, "their parent may be retried");
    kit.advance(retention - Duration::from_secs(60));
    assert_eq!(collect().await, 0, "their parent is within the retention");
    kit.client().retry(parent).await.expect("it has failed");
    let retried = kit.claim_one(worker).await;
    assert_eq!((retried.id, retried.wake, retried.children.len()), (parent, Some(Wake::Children), 2));
    kit.commit(worker, commit(&retried, done())).await;
    kit.advance(retention + Duration::from_secs(60));
    assert_eq!(collect().await, 3, "nobody can ask for them any more");
}

async fn ids_are_not_used_again_after_a_collection(kit: Kit) {
    let worker = kit.worker("w").await;
    let last = end_with(&kit, worker, done()).await;
    kit.advance(Duration::from_secs(60));
    assert_eq!(kit.client().collect(Duration::ZERO).await.expect("a collection").instances, 1);
    assert!(kit.insert(m()).await > last);
}

async fn an_engine_collects_by_itself(kit: Kit) {
    let retention = Retention { ended: Some(Duration::from_secs(60)), events: Some(Duration::from_secs(60)) };
    let machine = Script::named("m", |at, _| Ok(if at.step == "start" { next("end") } else { done() }));
    let builder = kit.engine().dyn_machine(machine).retention(retention, Duration::from_secs(10));
    let engine = builder.start().await.expect("it starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    kit.until(id, Status::Done).await;
    let deadline = tokio::time::Instant::now() + SOON;
    while kit.client().get(id).await.expect("a read").is_some() {
        assert!(tokio::time::Instant::now() < deadline, "it is still there");
        kit.advance(Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    engine.shutdown().await;
}

/// A machine that keeps no history.
struct Quiet;

#[derive(Serialize, Deserialize)]
enum Whisper {
    Ask,
    Hear,
    End { heard: usize },
}

impl Machine for Quiet {
    const NAME: &'static str = "quiet";
    const HISTORY: Option<History> = Some(History::Off);
    type State = Whisper;
    type Output = usize;

    async fn step(&self, state: Whisper, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Whisper::Ask => Outcome::await_signal(["go"], Whisper::Hear),
            Whisper::Hear => Outcome::next(Whisper::End { heard: cx.received_all().count() }),
            Whisper::End { heard } => Outcome::done(heard),
        })
    }
}

fn numbered(step: &'static str, n: u32) -> At {
    at_with(step, json!({ "n": n }))
}

/// A new instance that has taken this many steps, each with a state of its own.
async fn steps(kit: &Kit, worker: WorkerId, count: u32) -> InstanceId {
    let id = kit.insert(m_at(numbered("step", 0))).await;
    for n in 1..=count {
        let claimed = kit.claim_one(worker).await;
        kit.commit(worker, commit(&claimed, Transition::Next { at: numbered("step", n), ahead: true })).await;
    }
    id
}

/// Runs a new instance to its end.
async fn end_with(kit: &Kit, worker: WorkerId, end: Transition) -> InstanceId {
    let id = kit.insert(m().priority(-1)).await;
    let claimed = kit.claim_one(worker).await;
    assert_eq!(claimed.id, id);
    kit.commit(worker, commit(&claimed, end)).await;
    id
}

async fn collect_events(kit: &Kit, older_than: Duration, events_after: i64, rows_max: usize) -> Collected {
    let collect =
        Collect { namespace: None, ended_for: None, events_for: Some(older_than), events_after, rows_max };
    kit.store.collect(collect).await.expect("a collection")
}
