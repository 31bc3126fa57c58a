//! Operating from outside: cancel, retry, pause, fork.

use std::sync::Arc;
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Brake, Cancel, CancelRequest, Commit, Filter, Hold, Receipt};
use dormouse::{At, Children, Error, EventKind, InstanceId, Json, Spawn, Status, Transition, Wake, WorkerId};
use serde_json::json;
use tokio::sync::Notify;

use crate::kit::*;

suite![
    a_retried_await_keeps_its_deadline_without_a_history,
    whoever_is_parked_or_runnable_is_cancelled_at_once,
    an_ended_instance_cannot_be_cancelled,
    an_unknown_instance_is_not_found,
    a_running_step_is_cancelled_when_it_ends_and_its_outcome_is_discarded,
    a_running_step_hears_of_its_cancellation,
    a_cancellation_outlives_the_worker_that_ran_the_step,
    cancelling_a_parent_cancels_its_live_descendants,
    a_descendant_that_runs_is_cancelled_when_its_step_ends,
    children_that_a_spawn_keeps_run_on_without_their_parent,
    cancelling_a_child_leaves_its_parent_and_joins_it,
    a_failed_or_cancelled_instance_can_be_retried,
    a_retry_can_start_elsewhere,
    a_live_or_done_instance_cannot_be_retried,
    a_retry_of_one_cancelled_while_it_waited_waits_again,
    a_retry_of_one_cancelled_while_its_children_ran_sees_how_they_ended,
    a_paused_instance_keeps_its_status_and_takes_signals_and_waits,
    a_paused_instance_is_woken_by_the_clock_and_waits,
    an_ended_instance_cannot_be_paused,
    a_running_step_commits_before_the_brake_holds,
    a_paused_queue_gives_out_nothing_and_goes_on_when_resumed,
    an_engine_goes_on_as_soon_as_the_brake_is_off,
    every_event_can_be_forked_from_with_the_state_after_it,
    a_fork_can_change_the_state,
    a_fork_from_an_event_that_never_was_is_refused,
];

async fn whoever_is_parked_or_runnable_is_cancelled_at_once(kit: Kit) {
    let worker = kit.worker("w").await;
    let minute = Duration::from_secs(60);
    let child = NewInstance::named("c", 1, at("start")).start_at(Duration::from_secs(9999));
    let timeout = Some(minute.into());
    let outcomes = [
        (next("end"), Status::Runnable),
        (sleep("end", minute), Status::Scheduled),
        (replay("start", minute), Status::Scheduled),
        (wait_until(&["go"], "end", minute), Status::AwaitingSignal),
        (Transition::Spawn(Spawn { timeout, ..spawn(vec![child], "end") }), Status::AwaitingChildren),
    ];
    for (outcome, status) in outcomes {
        let id = kit.insert(m().key("k")).await;
        let claimed = kit.claim_one(worker).await;
        kit.commit(worker, commit(&claimed, outcome)).await;
        assert_eq!(kit.status(id).await, status);
        let descendants = usize::from(status == Status::AwaitingChildren);
        assert_eq!(kit.client().cancel("k").await.expect("a live target"), Cancel::Done { descendants });
        let row = kit.get(id).await;
        assert_eq!((row.status, row.wake_at, row.ended_at), (Status::Cancelled, None, Some(kit.now())));
        assert_eq!(kit.story(id).await.last(), Some(&EventKind::Cancelled));
        assert!(kit.claim(worker, 10).await.is_empty(), "it was {status}");
    }
    kit.advance(minute);
    assert_eq!(kit.due().await, 0, "no clock wakes the dead");
}

async fn an_ended_instance_cannot_be_cancelled(kit: Kit) {
    let worker = kit.worker("w").await;
    for (end, status) in [(done(), Status::Done), (fail("boom"), Status::Failed)] {
        let id = ended(&kit, worker, end).await;
        let before = kit.get(id).await;
        assert_eq!(kit.client().cancel(id).await.expect("an answer"), Cancel::AlreadyEnded(status));
        assert_eq!(kit.get(id).await, before);
    }
    let id = kit.insert(m()).await;
    kit.client().cancel(id).await.expect("a live instance");
    let again = kit.client().cancel(id).await.expect("an answer");
    assert_eq!(again, Cancel::AlreadyEnded(Status::Cancelled));
    assert_eq!(kit.story(id).await, [EventKind::Created, EventKind::Cancelled]);
}

async fn an_unknown_instance_is_not_found(kit: Kit) {
    let client = kit.client();
    let nobody = InstanceId(999);
    let not_found = |error: Error| assert!(matches!(error, Error::NotFound(_)), "{error}");
    not_found(client.cancel("nobody").await.expect_err("nobody"));
    not_found(client.retry(nobody).await.expect_err("nobody"));
    not_found(client.pause(nobody).await.expect_err("nobody"));
    not_found(client.resume("nobody").await.expect_err("nobody"));
    not_found(client.fork(nobody, 1, |new| new).await.expect_err("nobody"));
    not_found(client.explain(nobody).await.expect_err("nobody"));
}

async fn a_running_step_is_cancelled_when_it_ends_and_its_outcome_is_discarded(kit: Kit) {
    let worker = kit.worker("w").await;
    let children = vec![NewInstance::named("c", 1, at("start"))];
    for outcome in [
        done(),
        fail("boom"),
        next("end"),
        wait_for(&["go"], "end"),
        Transition::Spawn(spawn(children, "end")),
    ] {
        let id = kit.insert(m()).await;
        let claimed = kit.claim_one(worker).await;
        let cancel = kit
            .store
            .cancel("default".to_owned(), id.into(), CancelRequest::default())
            .await
            .expect("an answer");
        assert_eq!((cancel.value, cancel.effects.cancel), (Cancel::Requested, vec![id]));
        let row = kit.get(id).await;
        assert_eq!((row.status, row.cancel_requested), (Status::Executing, true));
        let ahead = Commit { hold: Hold::Keep, ..commit(&claimed, outcome) };
        assert!(matches!(kit.commit(worker, ahead).await, Receipt::Cancelled));
        let row = kit.get(id).await;
        assert_eq!((row.status, row.cancel_requested, row.worker), (Status::Cancelled, false, None));
        assert_eq!((row.step.as_str(), row.output), ("start", None), "the outcome is discarded");
        assert_eq!(kit.story(id).await, [EventKind::Created, EventKind::Cancelled]);
    }
    assert!(kit.list(Filter { machine: Some("c".to_owned()), ..Filter::default() }).await.is_empty());
}

async fn a_running_step_hears_of_its_cancellation(kit: Kit) {
    let patient = Patient { started: Arc::default(), heard: Arc::default() };
    let (started, heard) = (patient.started.clone(), patient.heard.clone());
    let engine = kit.engine().machine(patient).start().await.expect("it starts");
    let client = engine.client();
    // The first might hear of it by the heartbeat that an engine starts with; no other comes in this test.
    for _ in 0..2 {
        let id = client.start::<Patient>(Patience::Wait).await.expect("a start");
        tokio::time::timeout(SOON, started.notified()).await.expect("the step runs");
        assert_eq!(client.cancel(id).await.expect("a live instance"), Cancel::Requested);
        tokio::time::timeout(SOON, heard.notified()).await.expect("the step hears of it");
        let ended = kit.until(id, Status::Cancelled).await;
        assert_eq!(ended.output, None, "what the step returned is discarded");
    }
    engine.shutdown().await;
}

async fn a_cancellation_outlives_the_worker_that_ran_the_step(kit: Kit) {
    let mortal = kit.worker_with_lease("mortal", Duration::from_secs(1)).await;
    let heir = kit.worker("heir").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(mortal).await;
    kit.client().cancel(id).await.expect("a live instance");
    kit.advance(Duration::from_secs(2));
    assert_eq!(kit.reap().await, 1);
    assert_eq!(kit.status(id).await, Status::Cancelled);
    assert!(kit.claim(heir, 10).await.is_empty(), "it does not run again");
    assert!(matches!(kit.commit(mortal, commit(&claimed, done())).await, Receipt::Stale));
    assert_eq!(kit.story(id).await, [EventKind::Created, EventKind::Cancelled]);
}

async fn cancelling_a_parent_cancels_its_live_descendants(kit: Kit) {
    let worker = kit.worker("w").await;
    let root = kit.insert(m()).await;
    spawn_two(&kit, worker, Children::Cancel).await;
    let [left, right] = children_of(&kit, root).await;
    spawn_two(&kit, worker, Children::Cancel).await;
    let [done_leaf, live_leaf] = children_of(&kit, left).await;
    let claimed = kit.claim(worker, 10).await;
    let by = |id| claimed.iter().find(|row| row.id == id).expect("claimed");
    kit.commit(worker, commit(by(done_leaf), done())).await;
    kit.commit(worker, commit(by(live_leaf), wait_for(&["go"], "end"))).await;
    kit.commit(worker, commit(by(right), sleep("end", Duration::from_secs(60)))).await;
    let cancelled = kit.client().cancel(root).await.expect("a live instance");
    assert_eq!(cancelled, Cancel::Done { descendants: 3 });
    for id in [root, left, right, live_leaf] {
        assert_eq!(kit.status(id).await, Status::Cancelled);
    }
    assert_eq!(kit.status(done_leaf).await, Status::Done);
    let joined = EventKind::ChildrenJoined;
    assert!(!kit.story(root).await.contains(&joined), "an ended parent is not woken");
}

async fn a_descendant_that_runs_is_cancelled_when_its_step_ends(kit: Kit) {
    let worker = kit.worker("w").await;
    let root = kit.insert(m()).await;
    spawn_two(&kit, worker, Children::Cancel).await;
    let [runs, waits] = children_of(&kit, root).await;
    let claimed = kit.claim_one(worker).await;
    assert_eq!(claimed.id, runs);
    let cancel = kit
        .store
        .cancel("default".to_owned(), root.into(), CancelRequest::default())
        .await
        .expect("an answer");
    assert_eq!((cancel.value, cancel.effects.cancel), (Cancel::Done { descendants: 2 }, vec![runs]));
    assert_eq!((kit.status(runs).await, kit.status(waits).await), (Status::Executing, Status::Cancelled));
    // It had spawned nothing yet: what it returns now must not outlive it either.
    let spawning = Transition::Spawn(spawn(vec![NewInstance::named("c", 1, at("start"))], "end"));
    assert!(matches!(kit.commit(worker, commit(&claimed, spawning)).await, Receipt::Cancelled));
    assert!(kit.list(Filter { parent: Some(runs), ..Filter::default() }).await.is_empty());
}

async fn children_that_a_spawn_keeps_run_on_without_their_parent(kit: Kit) {
    let worker = kit.worker("w").await;
    let root = kit.insert(m()).await;
    spawn_two(&kit, worker, Children::Keep).await;
    let cancelled = kit.client().cancel(root).await.expect("a live instance");
    assert_eq!(cancelled, Cancel::Done { descendants: 0 });
    let claimed = kit.claim(worker, 10).await;
    assert_eq!(claimed.len(), 2);
    let row = kit.get(root).await;
    for child in &claimed {
        assert!(matches!(kit.commit(worker, commit(child, done())).await, Receipt::Released));
    }
    assert_eq!(kit.get(root).await, row, "their ends do not wake the dead");
}

async fn cancelling_a_child_leaves_its_parent_and_joins_it(kit: Kit) {
    let worker = kit.worker("w").await;
    let root = kit.insert(m()).await;
    spawn_two(&kit, worker, Children::Cancel).await;
    let [first, second] = children_of(&kit, root).await;
    kit.client().cancel(first).await.expect("a live instance");
    assert_eq!(
        (kit.status(root).await, kit.get(root).await.barrier),
        (Status::AwaitingChildren, Some(1)),
        "never upward"
    );
    assert_eq!(kit.status(second).await, Status::Runnable, "nor sideways");
    kit.client().cancel(second).await.expect("a live instance");
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake), (root, Some(Wake::Children)));
    assert!(woken.children.iter().all(|child| child.status == Status::Cancelled));
}

async fn a_failed_or_cancelled_instance_can_be_retried(kit: Kit) {
    let worker = kit.worker("w").await;
    let failed = kit.insert(m_at(numbered("start", 1))).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, replay("start", Duration::ZERO))).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, fail("boom"))).await;
    let cancelled = kit.insert(m()).await;
    kit.client().cancel(cancelled).await.expect("a live instance");
    for id in [failed, cancelled] {
        assert_eq!(kit.client().retry(id).await.expect("it has ended"), id);
        let row = kit.get(id).await;
        assert_eq!((row.status, row.attempt, row.ended_at), (Status::Runnable, 0, None));
        assert_eq!(kit.story(id).await.last(), Some(&EventKind::Retried));
        let claimed = kit.claim_one(worker).await;
        assert_eq!((claimed.id, claimed.at.step.as_ref()), (id, "start"));
        kit.commit(worker, commit(&claimed, done())).await;
        assert_eq!((kit.status(id).await, kit.get(id).await.last_error), (Status::Done, None));
    }
}

async fn a_retry_can_start_elsewhere(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = ended(&kit, worker, fail("boom")).await;
    kit.client().retry_raw(id, at_with("elsewhere", json!({"n": 2}))).await.expect("it has failed");
    let claimed = kit.claim_one(worker).await;
    assert_eq!((claimed.at.step.as_ref(), claimed.at.state.as_str()), ("elsewhere", r#"{"n":2}"#));
    let event = kit.history(id).await.pop().expect("an event");
    assert_eq!(
        (event.kind, event.step.as_str(), event.state.as_str()),
        (EventKind::Retried, "elsewhere", r#"{"n":2}"#)
    );
}

async fn a_live_or_done_instance_cannot_be_retried(kit: Kit) {
    let worker = kit.worker("w").await;
    let refused = async |id: InstanceId, status: Status| {
        let before = kit.get(id).await;
        let error = kit.client().retry(id).await.expect_err("it is neither failed nor cancelled");
        assert!(matches!(error, Error::WrongStatus { status: told, .. } if told == status), "{error}");
        assert_eq!(kit.get(id).await, before);
    };
    refused(ended(&kit, worker, done()).await, Status::Done).await;
    let id = kit.insert(m()).await;
    refused(id, Status::Runnable).await;
    let claimed = kit.claim_one(worker).await;
    refused(id, Status::Executing).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "end"))).await;
    refused(id, Status::AwaitingSignal).await;
}

async fn a_retry_of_one_cancelled_while_it_waited_waits_again(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_until(&["go"], "end", Duration::from_secs(60)))).await;
    let before = kit.get(id).await;
    kit.client().cancel(id).await.expect("a live instance");
    kit.advance(Duration::from_secs(30));
    kit.client().retry(id).await.expect("it is cancelled");
    let after = kit.get(id).await;
    assert_eq!((after.status, after.awaits), (Status::AwaitingSignal, before.awaits));
    assert_eq!(after.wake_at, before.wake_at, "its deadline is what it was");
    kit.deliver(id, signal("go")).await;
    assert_eq!(received(&kit.claim_one(worker).await).len(), 1);
}

async fn a_retry_of_one_cancelled_while_its_children_ran_sees_how_they_ended(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m().priority(-1)).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(vec![m(), m()], "join")))).await;
    kit.client().cancel(id).await.expect("a live instance");
    kit.client().retry(id).await.expect("it is cancelled");
    let claimed = kit.claim_one(worker).await;
    let statuses: Vec<_> = claimed.children.iter().map(|child| child.status).collect();
    assert_eq!((claimed.id, claimed.wake), (id, Some(Wake::Children)));
    assert_eq!(statuses, [Status::Cancelled, Status::Cancelled]);
}

async fn a_paused_instance_keeps_its_status_and_takes_signals_and_waits(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "end"))).await;
    kit.client().pause(id).await.expect("a live instance");
    let row = kit.get(id).await;
    assert_eq!((row.status, row.paused, row.seq), (Status::AwaitingSignal, true, 2));
    kit.deliver(id, signal("go")).await;
    assert_eq!(kit.status(id).await, Status::Runnable);
    assert!(kit.claim(worker, 10).await.is_empty());
    let resumed = kit.store.pause("default".to_owned(), id.into(), Brake::Off, None).await;
    assert!(resumed.expect("a live instance").effects.queues.contains("default"), "its queue is poked");
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake, received(&woken).len()), (id, Some(Wake::Signal), 1));
}

async fn a_paused_instance_is_woken_by_the_clock_and_waits(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m().start_at(Duration::from_secs(60))).await;
    kit.client().pause(id).await.expect("a live instance");
    assert_eq!(kit.status(id).await, Status::Scheduled);
    kit.advance(Duration::from_secs(60));
    assert_eq!(kit.due().await, 1);
    assert_eq!((kit.status(id).await, kit.claim(worker, 10).await.len()), (Status::Runnable, 0));
    kit.client().resume(id).await.expect("a live instance");
    assert_eq!(kit.claim_one(worker).await.id, id);
}

async fn an_ended_instance_cannot_be_paused(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = ended(&kit, worker, Transition::Done { output: Json::from(json!(1)) }).await;
    let before = kit.get(id).await;
    let refused = kit.client().pause(id).await.expect_err("it has ended");
    assert!(matches!(refused, Error::WrongStatus { .. }), "{refused}");
    assert_eq!(kit.get(id).await, before);
}

async fn a_running_step_commits_before_the_brake_holds(kit: Kit) {
    let worker = kit.worker("w").await;
    for received_some in [false, true] {
        let id = kit.insert(m()).await;
        let mut claimed = kit.claim_one(worker).await;
        if received_some {
            kit.deliver(id, signal("go")).await;
            kit.commit(worker, commit(&claimed, wait_for(&["go"], "start"))).await;
            claimed = kit.claim_one(worker).await;
        }
        kit.client().pause(id).await.expect("a live instance");
        assert_eq!(kit.status(id).await, Status::Executing);
        let ahead = Commit { hold: Hold::Keep, ..commit(&claimed, next("second")) };
        assert!(matches!(kit.commit(worker, ahead).await, Receipt::Released), "it does not run ahead");
        let row = kit.get(id).await;
        assert_eq!((row.status, row.step.as_str(), row.worker), (Status::Runnable, "second", None));
        assert!(kit.claim(worker, 10).await.is_empty());
        kit.client().resume(id).await.expect("a live instance");
        let claimed = kit.claim_one(worker).await;
        assert_eq!(claimed.at.step, "second");
        kit.commit(worker, commit(&claimed, done())).await;
    }
}

async fn a_paused_queue_gives_out_nothing_and_goes_on_when_resumed(kit: Kit) {
    let worker = kit.worker("w").await;
    let client = kit.client();
    kit.insert(m()).await;
    let other = kit.insert(m().queue("other")).await;
    client.pause_queue("default").await.expect("a brake");
    client.pause_queue("default").await.expect("twice is once");
    assert!(kit.claim(worker, 10).await.is_empty());
    assert_eq!(kit.claim_from(worker, "other", &[("m", 1)], 10).await[0].id, other);
    let paused = kit.stats().await.paused_queues;
    assert_eq!(
        (paused.len(), paused[0].name.as_str(), paused[0].namespace.as_str()),
        (1, "default", "default")
    );
    let off = kit.store.pause_queue("default".to_owned(), "default".to_owned(), Brake::Off).await;
    assert!(off.expect("no brake").effects.queues.contains("default"), "it is poked");
    assert_eq!(kit.claim(worker, 10).await.len(), 1);
    assert!(kit.stats().await.paused_queues.is_empty());
}

async fn an_engine_goes_on_as_soon_as_the_brake_is_off(kit: Kit) {
    let machine = Script::named("m", |_, _| Ok(done()));
    // No polling within the test: only a poke can wake the engine in time.
    let builder = kit.engine().poll(Duration::from_secs(3600)).dyn_machine(machine);
    let engine = builder.start().await.expect("it starts");
    let client = engine.client();
    client.pause_queue("default").await.expect("a brake");
    let id = client.start_many([m()]).await.expect("a start")[0].id();
    client.pause(id).await.expect("a live instance");
    client.resume_queue("default").await.expect("no brake");
    let witness = client.start_many([m()]).await.expect("a start")[0].id();
    kit.until(witness, Status::Done).await;
    assert_eq!(kit.status(id).await, Status::Runnable);
    client.resume(id).await.expect("a live instance");
    kit.until(id, Status::Done).await;
    engine.shutdown().await;
}

async fn every_event_can_be_forked_from_with_the_state_after_it(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m_at(numbered("a", 0)).lane("l").priority(3)).await;
    let claimed = kit.claim_one(worker).await;
    let parked = Transition::Await { at: numbered("b", 1), names: vec!["go".to_owned()], timeout: None };
    kit.commit(worker, commit(&claimed, parked)).await;
    kit.deliver(id, signal("go")).await;
    let claimed = kit.claim_one(worker).await;
    let asleep = Transition::Sleep { at: numbered("c", 2), until: Duration::from_secs(1).into() };
    kit.commit(worker, commit(&claimed, asleep)).await;
    kit.advance(Duration::from_secs(1));
    kit.due().await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, Transition::Next { at: numbered("d", 3), ahead: true })).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, fail("boom"))).await;

    let places =
        [("a", 0), ("b", 1), ("b", 1), ("c", 2), ("c", 2), ("d", 3), ("d", 3)].map(|(s, n)| numbered(s, n));
    assert_eq!(kit.history(id).await.len(), places.len());
    for (seq, place) in (1..).zip(places) {
        let fork = kit.client().fork(id, seq, |new| new).await.expect("an event");
        let row = kit.get(fork).await;
        assert_eq!((row.step.as_str(), &row.state), (place.step.as_ref(), &place.state), "at event {seq}");
        let status = if seq == 2 { Status::AwaitingSignal } else { Status::Runnable };
        assert_eq!((row.status, row.attempt), (status, 0), "at event {seq}");
        assert_eq!(row.inbox, u32::from(seq == 3), "what woke the original wakes the fork");
        assert_eq!((row.lane.as_deref(), row.priority, row.machine.as_str()), (Some("l"), 3, "m"));
        let created = kit.history(fork).await.remove(0).data.expect("where it came from");
        assert_eq!(created.as_str(), format!(r#"{{"forked_from":{id},"seq":{seq}}}"#));
    }
    assert_eq!(kit.status(id).await, Status::Failed, "the original is as it was");
}

async fn a_fork_can_change_the_state(kit: Kit) {
    let id = kit.insert(m_at(numbered("a", 0))).await;
    let edit = |mut new: NewInstance| {
        new.at = numbered("b", 9);
        new.queue("other")
    };
    let fork = kit.client().fork(id, 1, edit).await.expect("an event");
    let row = kit.get(fork).await;
    assert_eq!((row.step.as_str(), row.state.as_str(), row.queue.as_str()), ("b", r#"{"n":9}"#, "other"));
}

async fn a_fork_from_an_event_that_never_was_is_refused(kit: Kit) {
    let id = kit.insert(m()).await;
    for seq in [0, 2, u64::MAX >> 1] {
        let refused = kit.client().fork(id, seq, |new| new).await.expect_err("no such event");
        assert!(matches!(refused, Error::NoEvent { seq: told, .. } if told == seq), "{refused}");
    }
    assert_eq!(kit.list(Filter::default()).await.len(), 1);
}

/// A machine whose step waits until it hears that it is cancelled.
struct Patient {
    started: Arc<Notify>,
    heard: Arc<Notify>,
}

#[derive(Serialize, Deserialize)]
enum Patience {
    Wait,
}

impl Machine for Patient {
    const NAME: &'static str = "patient";
    type State = Patience;
    type Output = u32;

    async fn step(&self, _state: Patience, cx: &Context) -> StepResult<Self> {
        assert!(!cx.is_cancelled());
        self.started.notify_one();
        cx.cancelled().await;
        assert!(cx.is_cancelled());
        self.heard.notify_one();
        Ok(Outcome::done(1))
    }
}

fn numbered(step: &'static str, n: u32) -> At {
    at_with(step, json!({ "n": n }))
}

/// Runs a new instance to its end.
async fn ended(kit: &Kit, worker: WorkerId, end: Transition) -> InstanceId {
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, end)).await;
    id
}

/// The next instance that can run spawns two children of its kind.
async fn spawn_two(kit: &Kit, worker: WorkerId, on_cancel: Children) {
    let claimed = kit.claim_one(worker).await;
    let spawning = Transition::Spawn(Spawn { on_cancel, ..spawn(vec![m(), m()], "join") });
    kit.commit(worker, commit(&claimed, spawning)).await;
}

/// The two children of an instance, in the order of their spawning.
async fn children_of(kit: &Kit, parent: InstanceId) -> [InstanceId; 2] {
    let children = kit.list(Filter { parent: Some(parent), ..Filter::default() }).await;
    [children[1].id, children[0].id]
}

async fn a_retried_await_keeps_its_deadline_without_a_history(kit: Kit) {
    let worker = kit.worker("w").await;
    let (mut with_deadline, mut without) = (m(), m());
    with_deadline.history = Some(dormouse::History::Off);
    without.history = Some(dormouse::History::Off);
    let hour = Duration::from_secs(3600);
    let mut ids = Vec::new();
    for (new, outcome) in
        [(with_deadline, wait_until(&["go"], "end", hour)), (without, wait_for(&["go"], "end"))]
    {
        let id = kit.insert(new).await;
        let claimed = kit.claim_one(worker).await;
        assert!(!claimed.keeps_history);
        kit.commit(worker, commit(&claimed, outcome)).await;
        kit.client().cancel(id).await.expect("a live instance");
        ids.push(id);
    }
    let deadline = kit.now() + hour;
    kit.advance(Duration::from_secs(60));
    for id in &ids {
        kit.client().retry(*id).await.expect("it was cancelled");
        assert_eq!(kit.status(*id).await, Status::AwaitingSignal);
    }
    assert_eq!(kit.get(ids[0]).await.wake_at, Some(deadline));
    assert_eq!(kit.get(ids[1]).await.wake_at, None);
    kit.advance(hour);
    assert_eq!(kit.due().await, 1);
    assert_eq!(kit.claim_one(worker).await.wake, Some(dormouse::Wake::Timeout));
}
