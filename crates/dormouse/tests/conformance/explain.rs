//! Why an instance is not moving: one test for each sentence.

use std::time::Duration;

use dormouse::store::{Filter, Namespaces, NewWorker, SendOutcome, SendReport};
use dormouse::{Dispatch, INTERACTION_API, InstanceId, NewInstance, Spawn, Transition, TroubleKind};

use crate::kit::*;

suite![
    one_that_is_done,
    one_that_failed_tells_why,
    one_that_was_cancelled,
    one_that_runs_tells_where_and_since_when,
    one_that_runs_and_will_be_cancelled,
    one_whose_worker_is_gone,
    one_that_will_be_tried_again_tells_when_and_why,
    one_that_sleeps_tells_until_when,
    one_parked_on_signals_names_them,
    one_parked_on_children_counts_them,
    one_that_is_paused,
    one_that_is_parked_and_paused_says_both,
    one_in_a_paused_queue,
    one_whose_lane_is_held_names_the_holder,
    one_without_any_worker,
    one_whose_machine_nobody_runs,
    one_whose_version_nobody_runs,
    one_whose_queue_nobody_serves,
    one_whose_namespace_nobody_serves,
    one_that_is_next,
    one_that_waits_its_turn_counts_those_before_it,
    one_far_back_counts_up_to_a_thousand,
    one_parked_on_children_that_run_explains_the_oldest,
    one_whose_request_fails_tells_the_error_and_the_next_try,
    one_whose_transport_nobody_has_says_so,
    one_that_asks_people_says_so,
];

async fn one_that_is_done(kit: Kit) {
    let id = after(&kit, done()).await;
    says(&kit, id, "it is done").await;
}

async fn one_that_failed_tells_why(kit: Kit) {
    let id = after(&kit, fail("out of stock")).await;
    says(&kit, id, "it failed: out of stock").await;
}

async fn one_that_was_cancelled(kit: Kit) {
    let id = kit.insert(m()).await;
    kit.client().cancel(id).await.expect("a live instance");
    says(&kit, id, "it was cancelled").await;
}

async fn one_that_runs_tells_where_and_since_when(kit: Kit) {
    let worker = kit.worker("alice").await;
    let id = kit.insert(m()).await;
    kit.advance(Duration::from_secs(60));
    kit.claim_one(worker).await;
    kit.advance(Duration::from_secs(60));
    says(&kit, id, r#"its step runs on worker "alice", since 2030-01-01T00:01:00Z (1m ago)"#).await;
}

async fn one_that_runs_and_will_be_cancelled(kit: Kit) {
    let worker = kit.worker("alice").await;
    let id = kit.insert(m()).await;
    kit.claim_one(worker).await;
    kit.client().cancel(id).await.expect("a live instance");
    let since = r#"its step runs on worker "alice", since 2030-01-01T00:00:00Z (now)"#;
    says(&kit, id, &format!("{since}; it will be cancelled when that ends")).await;
}

async fn one_whose_worker_is_gone(kit: Kit) {
    let worker = kit.worker_with_lease("bob", Duration::from_secs(1)).await;
    let id = kit.insert(m()).await;
    kit.claim_one(worker).await;
    kit.advance(Duration::from_secs(2));
    says(&kit, id, "the worker that ran its step is gone: the next reaper will take it back").await;
}

async fn one_that_will_be_tried_again_tells_when_and_why(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let tried = async |error: Option<&str>| {
        let claimed = kit.claim_one(worker).await;
        let (delay, error) = (Duration::from_secs(60), error.map(str::to_owned));
        kit.commit(worker, commit(&claimed, Transition::Replay { at: at("start"), delay, error })).await;
    };
    tried(Some("timed out")).await;
    let again = |times: &str, at: &str| {
        format!(r#"its step "start" failed {times} and will be tried again at {at} (in 1m)"#)
    };
    says(&kit, id, &(again("once", "2030-01-01T00:01:00Z") + ": timed out")).await;
    kit.advance(Duration::from_secs(60));
    kit.due().await;
    tried(None).await;
    let asked =
        r#"its step "start" asked to run again at 2030-01-01T00:02:00Z (in 1m), after 2 tries so far"#;
    says(&kit, id, asked).await;
}

async fn one_that_sleeps_tells_until_when(kit: Kit) {
    let id = after(&kit, sleep("start", Duration::from_secs(60))).await;
    says(&kit, id, "it sleeps until 2030-01-01T00:01:00Z (in 1m)").await;
}

async fn one_parked_on_signals_names_them(kit: Kit) {
    let id = after(&kit, wait_for(&["paid"], "start")).await;
    says(&kit, id, r#"it is parked on the signal "paid""#).await;
    let id = after(&kit, wait_until(&["paid", "gone"], "start", Duration::from_secs(60))).await;
    says(&kit, id, r#"it is parked on the signals "gone" or "paid" until 2030-01-01T00:01:00Z (in 1m)"#)
        .await;
}

async fn one_parked_on_children_counts_them(kit: Kit) {
    let children = || vec![NewInstance::named("c", 1, at("start")); 2];
    let id = after(&kit, Transition::Spawn(spawn(children(), "start"))).await;
    let unrun = r#"; 2 of them cannot run: no live worker runs machine "c""#;
    says(&kit, id, &format!("it is parked on its children: 2 still to end{unrun}")).await;
    let timeout = Some(Duration::from_secs(60).into());
    let id = after(&kit, Transition::Spawn(Spawn { timeout, ..spawn(children(), "start") })).await;
    let until = "until 2030-01-01T00:01:00Z (in 1m)";
    says(&kit, id, &format!("it is parked on its children {until}: 2 still to end{unrun}")).await;
}

async fn one_that_is_paused(kit: Kit) {
    let id = kit.insert(m()).await;
    kit.client().pause(id).await.expect("a live instance");
    says(&kit, id, "it is paused; resume it to let it run").await;
}

async fn one_that_is_parked_and_paused_says_both(kit: Kit) {
    let id = after(&kit, wait_for(&["paid"], "start")).await;
    kit.client().pause(id).await.expect("a live instance");
    let brake = "it is paused, so it will not run even then until it is resumed";
    says(&kit, id, &format!(r#"it is parked on the signal "paid"; {brake}"#)).await;
}

async fn one_in_a_paused_queue(kit: Kit) {
    let id = kit.insert(m()).await;
    kit.client().pause_queue("default").await.expect("a brake");
    says(&kit, id, r#"its queue "default" is paused; resume the queue to let it run"#).await;
}

async fn one_whose_lane_is_held_names_the_holder(kit: Kit) {
    let holder = kit.insert(m().lane("l")).await;
    let id = kit.insert(m().lane("l")).await;
    let held = format!(r#"its lane "l" is held by instance {holder}; instance {holder} (m at "start")"#);
    says(&kit, id, &format!("{held}: it could run, but no worker is live")).await;
    let worker = kit.worker("alice").await;
    kit.claim_one(worker).await;
    let runs = r#"its step runs on worker "alice", since 2030-01-01T00:00:00Z (now)"#;
    says(&kit, id, &format!("{held}: {runs}")).await;
}

async fn one_parked_on_children_that_run_explains_the_oldest(kit: Kit) {
    let children = || vec![NewInstance::named("m", 1, at("start")); 2];
    let id = after(&kit, Transition::Spawn(spawn(children(), "start"))).await;
    let all = Filter { parent: Some(id), ..Filter::default() };
    let child = kit.list(all).await.last().expect("a child").id;
    let told = "it is next in its queue and will be claimed at once";
    let parked = "it is parked on its children: 2 still to end";
    says(&kit, id, &format!(r#"{parked}; instance {child} (m at "start"): {told}"#)).await;
}

async fn one_whose_request_fails_tells_the_error_and_the_next_try(kit: Kit) {
    let transports = vec!["partner".to_owned()];
    let worker = NewWorker { transports, ..kit.new_worker("sender") };
    let worker = kit.store.register(worker).await.expect("a worker");
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, Transition::Dispatch(asks("partner")))).await;
    let parked = "it is parked on a unit: 1 answer still to come";
    let about = r#"interaction 1 is about to be sent by transport "partner""#;
    says(&kit, id, &format!("{parked}; {about}")).await;
    let take = async || {
        let outbox = kit.store.outbox("partner".to_owned(), Namespaces::All, 9, Duration::from_secs(60));
        outbox.await.expect("an outbox").taken.pop().expect("a request")
    };
    let sent = async |outcome: SendOutcome| {
        let asked = take().await;
        let report = SendReport { id: asked.id, sends: asked.sends, outcome };
        kit.store.sent(vec![report]).await.expect("a report");
    };
    sent(SendOutcome::Retry { after: Duration::from_secs(8), error: "connection refused".to_owned() }).await;
    let failed = r#"interaction 1 was sent once by transport "partner", in vain, and is sent again at"#;
    let told = format!("{parked}; {failed} 2030-01-01T00:00:08Z (in 8s): connection refused");
    says(&kit, id, &told).await;
    let troubles = kit.client().troubles().await.expect("a read");
    let [trouble] = troubles.as_slice() else { panic!("{troubles:?}") };
    assert_eq!((trouble.kind, trouble.instance), (TroubleKind::SendsFail, Some(id)));
    assert_eq!(trouble.error.as_deref(), Some("connection refused"));
    let told = r#"1 request could not be sent by transport "partner", trying again: connection refused"#;
    assert_eq!(trouble.told(), told);
    kit.advance(Duration::from_secs(8));
    sent(SendOutcome::Sent).await;
    let waits = r#"interaction 1 was sent by transport "partner" at 2030-01-01T00:00:08Z (now)"#;
    says(&kit, id, &format!("{parked}; {waits} and is not answered yet")).await;
    assert_eq!(kit.client().troubles().await.expect("a read"), []);
}

async fn one_whose_transport_nobody_has_says_so(kit: Kit) {
    let id = after(&kit, Transition::Dispatch(asks("partnr"))).await;
    let parked = "it is parked on a unit: 1 answer still to come";
    let unsent = r#"interaction 1 is not sent, as no live worker has its transport "partnr""#;
    says(&kit, id, &format!("{parked}; {unsent}")).await;
}

async fn one_that_asks_people_says_so(kit: Kit) {
    let id = after(&kit, Transition::Dispatch(asks(INTERACTION_API))).await;
    let parked = "it is parked on a unit: 1 answer still to come";
    let asked = "interaction 1 waits for an answer through the interaction API";
    says(&kit, id, &format!("{parked}; {asked}")).await;
}

fn asks(transport: &str) -> Dispatch {
    Dispatch { transport: transport.to_owned(), at: at("start"), ..crate::units::kit::one("please") }
}

async fn one_without_any_worker(kit: Kit) {
    kit.worker_with_lease("bob", Duration::from_secs(1)).await;
    let id = kit.insert(m()).await;
    kit.advance(Duration::from_secs(2));
    says(&kit, id, "it could run, but no worker is live").await;
}

async fn one_whose_machine_nobody_runs(kit: Kit) {
    serving(&kit, "default", "n", 1).await;
    let id = kit.insert(m()).await;
    says(&kit, id, r#"no live worker runs machine "m""#).await;
}

async fn one_whose_version_nobody_runs(kit: Kit) {
    serving(&kit, "default", "m", 2).await;
    let id = kit.insert(m()).await;
    says(&kit, id, r#"no live worker runs version 1 of machine "m""#).await;
}

async fn one_whose_queue_nobody_serves(kit: Kit) {
    serving(&kit, "other", "m", 1).await;
    let id = kit.insert(m()).await;
    says(&kit, id, r#"no live worker that runs it serves its queue "default""#).await;
}

async fn one_whose_namespace_nobody_serves(kit: Kit) {
    let engine = kit.run(|_, _| Ok(done())).await;
    let elsewhere = kit.client().in_namespace("acme").expect("a good name");
    let id = elsewhere.start_many([m()]).await.expect("a start")[0].id();
    says(&kit, id, r#"no live worker serves namespace "acme""#).await;
    engine.shutdown().await;
}

async fn one_that_is_next(kit: Kit) {
    kit.worker("w").await;
    let id = kit.insert(m()).await;
    kit.insert(m()).await;
    says(&kit, id, "it is next in its queue and will be claimed at once").await;
}

async fn one_that_waits_its_turn_counts_those_before_it(kit: Kit) {
    kit.worker("w").await;
    kit.insert_many(vec![m(), m(), m().priority(1), m().queue("other")]).await;
    let id = kit.insert(m()).await;
    says(&kit, id, r#"it waits its turn in queue "default": its share "default" has 2 turns before it"#)
        .await;
}

async fn one_far_back_counts_up_to_a_thousand(kit: Kit) {
    kit.worker("w").await;
    kit.insert_many(vec![m(); 1100]).await;
    let id = kit.insert(m()).await;
    says(
        &kit,
        id,
        r#"it waits its turn in queue "default": its share "default" has 1,000 turns or more before it"#,
    )
    .await;
}

/// A new instance whose first step has this outcome.
async fn after(kit: &Kit, outcome: Transition) -> InstanceId {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, outcome)).await;
    id
}

async fn serving(kit: &Kit, queue: &str, machine: &str, version: u32) {
    let worker = NewWorker {
        name: "w".to_owned(),
        process: dormouse::Process::current(),
        namespaces: dormouse::store::Namespaces::All,
        lease: Duration::from_secs(60),
        queues: vec![queue.to_owned()],
        machines: vec![(machine.to_owned(), version)],
        transports: vec![],
        declares: vec![],
    };
    kit.store.register(worker).await.expect("a worker registers");
}

async fn says(kit: &Kit, id: InstanceId, told: &str) {
    let instance = kit.get(id).await;
    let client = kit.client().in_namespace(&instance.namespace).expect("a good name");
    let explained = client.explain(id).await.expect("an instance");
    let key = instance.key.map(|key| format!(" {key:?}")).unwrap_or_default();
    assert_eq!(explained, format!("instance {id}{key} (m at \"start\"): {told}"));
}
