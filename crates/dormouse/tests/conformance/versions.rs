//! Versions of a machine's code, side by side and one after another.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Claimed, Commit, Hold, Namespaces};
use dormouse::testing::TestEngine;
use dormouse::{At, EventKind, InstanceId, Json, Status};
use serde_json::json;

use crate::kit::*;

suite![
    two_versions_side_by_side_are_each_run_by_their_own_code,
    an_unknown_machine_or_version_is_left_alone_until_a_worker_registers_it,
    a_migration_lifts_a_row_and_its_history_goes_on,
    a_migration_lifts_a_parked_row_when_it_wakes,
    a_fork_from_before_a_migration_has_the_version_its_state_is_of,
    a_version_with_code_of_its_own_is_not_lifted,
    a_failing_migration_fails_that_row_alone_and_it_can_be_retried,
    a_migration_that_panics_fails_that_row_alone,
    a_lifted_row_that_fails_is_lifted_again_when_retried,
    what_the_registered_code_cannot_read_is_listed_and_left_as_it_is,
    a_state_that_no_longer_decodes_fails_that_instance_alone_and_says_where,
    an_unknown_step_fails_that_instance_alone_and_says_so,
    counts_follow_an_instance_from_version_to_version,
];

async fn two_versions_side_by_side_are_each_run_by_their_own_code(kit: Kit) {
    let says = |version: u32| {
        Script::version("m", version, move |_, _| {
            Ok(dormouse::Transition::Done { output: Json::from(json!(version)) })
        })
    };
    let engine = kit.engine().dyn_machine(says(1)).dyn_machine(says(2)).start().await.expect("it starts");
    let both = [NewInstance::named("m", 1, at("start")), NewInstance::named("m", 2, at("start"))];
    let started = engine.client().start_many(both).await.expect("a start");
    for (inserted, version) in started.iter().zip([1, 2]) {
        let ended = kit.until(inserted.id(), Status::Done).await;
        assert_eq!((ended.version, ended.output), (version, Some(Json::from(json!(version)))));
    }
    engine.shutdown().await;
}

async fn an_unknown_machine_or_version_is_left_alone_until_a_worker_registers_it(kit: Kit) {
    let first = kit.run(|_, _| Ok(done())).await;
    let unknown =
        [NewInstance::named("m", 2, at("start")), NewInstance::named("n", 1, at("start")).even_if_unknown()];
    let unknown: Vec<_> = first
        .client()
        .start_many(unknown)
        .await
        .expect("a start")
        .iter()
        .map(dormouse::Inserted::id)
        .collect();
    let known = first.client().start_many([m()]).await.expect("a start")[0].id();
    kit.until(known, Status::Done).await;
    first.shutdown().await;
    for id in &unknown {
        assert_eq!(kit.story(*id).await, [EventKind::Created]);
    }
    let builder = kit.engine().dyn_machine(Script::version("m", 2, |_, _| Ok(done())));
    let second = builder.dyn_machine(Script::named("n", |_, _| Ok(done()))).start().await.expect("it starts");
    for id in unknown {
        kit.until(id, Status::Done).await;
    }
    second.shutdown().await;
}

async fn a_migration_lifts_a_row_and_its_history_goes_on(kit: Kit) {
    let id = v1(&kit, "Start", json!({"cents": 250})).await;
    let engine = kit.engine().machine(Till).start().await.expect("it starts");
    engine.client().signal_raw(id, signal("pay")).await.expect("a live target");
    let ended = kit.until(id, Status::Done).await;
    assert_eq!((ended.version, ended.output), (2, Some(Json::from(json!("2.50 EUR")))));
    let story: Vec<_> =
        kit.history(id).await.into_iter().map(|e| (e.kind, e.step, e.state.to_string())).collect();
    let euros = r#"{"euros":"2.50 EUR"}"#.to_owned();
    use EventKind::*;
    assert_eq!(
        story,
        [
            (Created, "Start".to_owned(), r#"{"cents":250}"#.to_owned()),
            (SignalWaiting, "Paid".to_owned(), euros.clone()),
            (SignalReceived, "Paid".to_owned(), euros.clone()),
            (Done, "Paid".to_owned(), euros),
        ]
    );
    engine.shutdown().await;
}

async fn a_migration_lifts_a_parked_row_when_it_wakes(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = v1(&kit, "Start", json!({"cents": 250})).await;
    let claimed = kit.claim_from(worker, "default", &[("till", 1)], 1).await.remove(0);
    let place = at_with("Paid", json!({"cents": 250}));
    let names = vec!["pay".to_owned()];
    kit.commit(worker, commit(&claimed, dormouse::Transition::Await { at: place, names, timeout: None }))
        .await;
    let engine = kit.engine().machine(Till).start().await.expect("it starts");
    engine.client().signal_raw(id, signal("pay")).await.expect("a live target");
    assert_eq!(kit.until(id, Status::Done).await.output, Some(Json::from(json!("2.50 EUR"))));
    engine.shutdown().await;
}

async fn a_fork_from_before_a_migration_has_the_version_its_state_is_of(kit: Kit) {
    let id = v1(&kit, "Start", json!({"cents": 250})).await;
    let engine = kit.engine().machine(Till).start().await.expect("it starts");
    let client = engine.client();
    kit.until(id, Status::AwaitingSignal).await;
    for (seq, version) in [(1, 1), (2, 2)] {
        let fork = client.fork(id, seq, |new| new).await.expect("a fork");
        assert_eq!(kit.history(fork).await[0].version, version);
        client.signal_raw(fork, signal("pay")).await.expect("a live target");
        assert_eq!(kit.until(fork, Status::Done).await.output, Some(Json::from(json!("2.50 EUR"))));
    }
    let state = client.get(id).await.expect("a read").expect("it is there").state_as::<Till>();
    assert!(matches!(state, Ok(Counter::Paid { euros }) if euros == "2.50 EUR"));
    engine.shutdown().await;
}

async fn a_version_with_code_of_its_own_is_not_lifted(kit: Kit) {
    let id = v1(&kit, "Start", json!({"cents": 1})).await;
    let builder = kit.engine().machine(Till).dyn_machine(Script::named("till", |_, _| Ok(done())));
    let engine = builder.start().await.expect("it starts");
    assert_eq!(kit.until(id, Status::Done).await.version, 1);
    engine.shutdown().await;
}

async fn a_migration_that_panics_fails_that_row_alone(kit: Kit) {
    let (broken, sound) =
        (v1(&kit, "Start", json!({"cents": 666})).await, v1(&kit, "Paid", json!({"cents": 1})).await);
    let engine = kit.engine().machine(Till).start().await.expect("it starts");
    let error = kit.until(broken, Status::Failed).await.last_error.expect("a reason");
    assert_eq!(error, "migrating from version 1 to 2 panicked: the number of the beast");
    kit.until(sound, Status::Done).await;
    engine.shutdown().await;
}

async fn a_failing_migration_fails_that_row_alone_and_it_can_be_retried(kit: Kit) {
    let bad = v1(&kit, "Start", json!({"pennies": 1})).await;
    let good = v1(&kit, "Start", json!({"cents": 100})).await;
    let engine = kit.engine().machine(Till).start().await.expect("it starts");
    let failed = kit.until(bad, Status::Failed).await;
    let error = failed.last_error.expect("why it failed");
    assert_eq!(error, "migrating from version 1 to 2 failed: it has no cents");
    assert_eq!((failed.version, failed.state.as_str()), (1, r#"{"pennies":1}"#), "nothing else changed");
    kit.until(good, Status::AwaitingSignal).await;
    let mended = at_with("Start", json!({"cents": 1}));
    engine.client().retry_raw(bad, mended).await.expect("it has failed");
    let parked = kit.until(bad, Status::AwaitingSignal).await;
    assert_eq!((parked.version, parked.state.as_str()), (2, r#"{"euros":"0.01 EUR"}"#));
    engine.shutdown().await;
}

async fn a_lifted_row_that_fails_is_lifted_again_when_retried(kit: Kit) {
    let id = v1(&kit, "Start", json!({"cents": 13})).await;
    let engine = kit.engine().machine(Till).start().await.expect("it starts");
    let failed = kit.until(id, Status::Failed).await;
    assert_eq!(failed.last_error.as_deref(), Some("unlucky"));
    assert_eq!((failed.version, failed.state.as_str()), (1, r#"{"cents":13}"#), "version and state agree");
    engine.client().retry(id).await.expect("it has failed");
    wait_for_story(&kit, id, 4).await;
    let failed = kit.until(id, Status::Failed).await;
    assert_eq!(failed.last_error.as_deref(), Some("unlucky"), "its old state was lifted once more");
    engine.shutdown().await;
}

async fn what_the_registered_code_cannot_read_is_listed_and_left_as_it_is(kit: Kit) {
    let readable = v1(&kit, "Start", json!({"cents": 1})).await;
    let broken = v1(&kit, "Start", json!({"pennies": 1})).await;
    let gone = kit.insert(NewInstance::named("till", 2, at("Gone"))).await;
    let unknown = kit.insert(m()).await;
    let mut elsewhere = NewInstance::named("till", 2, at_with("Paid", json!({"euros": 3})));
    elsewhere.namespace = "tenant".to_owned();
    let elsewhere = kit.insert(elsewhere).await;
    let ended = kit.insert(m()).await;
    kit.client().cancel(ended).await.expect("a live instance");
    let before = [kit.get(readable).await, kit.get(broken).await, kit.get(gone).await];
    // It serves a queue of its own, so that it runs nothing here.
    let builder = kit.engine().queue("nothing", 1).namespaces(Namespaces::All).machine(Till);
    let engine = builder.start().await.expect("it starts");
    let listed = engine.unreadable(100).await.expect("a list");
    let of = |id: InstanceId| listed.iter().find(|entry| entry.id == id).expect("it is listed");
    assert_eq!(listed.len(), 4, "{listed:?}");
    assert_eq!(of(broken).reason, "its migration fails: it has no cents");
    assert_eq!(of(gone).reason, "step \"Gone\" no longer exists");
    assert_eq!(of(unknown).reason, "no registered code runs machine m version 1");
    assert!(of(elsewhere).reason.contains("Paid.euros"), "{}", of(elsewhere).reason);
    assert_eq!((of(gone).machine.as_str(), of(gone).version, of(gone).step.as_str()), ("till", 2, "Gone"));
    assert_eq!(engine.unreadable(2).await.expect("a list").len(), 2, "no more than asked for");
    assert_eq!([kit.get(readable).await, kit.get(broken).await, kit.get(gone).await], before);
    engine.shutdown().await;
}

async fn a_state_that_no_longer_decodes_fails_that_instance_alone_and_says_where(kit: Kit) {
    let bad = kit.insert(NewInstance::named("till", 2, at_with("Paid", json!({"euros": 3})))).await;
    let good = kit.insert(NewInstance::named("till", 2, at_with("Paid", json!({"euros": "3"})))).await;
    let engine = kit.engine().machine(Till).start().await.expect("it starts");
    kit.until(good, Status::Done).await;
    let failed = kit.until(bad, Status::Failed).await;
    let error = failed.last_error.expect("why it failed");
    assert!(error.contains("its state does not decode") && error.contains("Paid.euros"), "{error}");
    assert_eq!(failed.state.as_str(), r#"{"euros":3}"#, "it is there for whoever mends it");
    engine.client().retry_at::<Till>(bad, Counter::Paid { euros: "3".into() }).await.expect("it failed");
    kit.until(bad, Status::Done).await;
    engine.shutdown().await;
}

async fn an_unknown_step_fails_that_instance_alone_and_says_so(kit: Kit) {
    let bad = kit.insert(NewInstance::named("till", 2, at("Gone"))).await;
    let engine = kit.engine().machine(Till).start().await.expect("it starts");
    let error = kit.until(bad, Status::Failed).await.last_error.expect("why it failed");
    assert!(error.contains(r#"step "Gone""#) && error.contains("unknown variant `Gone`"), "{error}");
    engine.shutdown().await;
}

/// However an instance comes to another version, the kept counts of both tell it.
async fn counts_follow_an_instance_from_version_to_version(kit: Kit) {
    let (worker, client) = (kit.worker("w").await, kit.client());
    let check = async |what: &str, live: [u64; 2]| {
        kit.check_counts(what).await;
        let counts = kit.stats().await.instances;
        let of = |version| {
            let live = counts.iter().filter(|row| row.version == version && !row.status.is_terminal());
            live.map(|row| row.count).sum::<u64>()
        };
        assert_eq!([of(1), of(2)], live, "after {what}");
    };
    let claim = async |version: u32| {
        kit.claim_from(worker, "default", &[("m", version)], 1).await.pop().expect("a runnable row")
    };
    let lift = |claimed: &Claimed, transition| Commit { version: 2, ..commit(claimed, transition) };
    kit.insert_many(vec![m(), m(), m(), NewInstance::named("m", 2, at("start"))]).await;
    check("inserts", [3, 1]).await;

    let first = claim(1).await;
    check("a claim", [3, 1]).await;
    kit.commit(worker, Commit { hold: Hold::Keep, ..lift(&first, next("ahead")) }).await;
    check("a lift of what runs on", [2, 2]).await;
    let second = claim(1).await;
    kit.commit(worker, lift(&second, wait_for(&["go"], "on"))).await;
    check("a lift of what parks", [1, 3]).await;
    kit.deliver(second.id, signal("go")).await;
    check("a signal", [1, 3]).await;
    let third = claim(1).await;
    kit.commit(worker, lift(&third, fail("broken"))).await;
    check("a failure, which lifts nothing", [0, 3]).await;
    client.retry(third.id).await.expect("a failed instance");
    check("a retry", [1, 3]).await;
    client.fork(first.id, 1, |new| new).await.expect("a fork");
    check("a fork from before a lift", [2, 3]).await;
    client.fork(first.id, 2, |new| new).await.expect("a fork");
    check("a fork from after it", [2, 4]).await;
    let last = claim(2).await;
    kit.commit(worker, commit(&last, done())).await;
    check("an end", [2, 3]).await;
    kit.store.deregister(worker).await.expect("a worker");
    assert_eq!(kit.reap().await, 1, "the first was still held");
    check("a reap", [2, 3]).await;
    client.cancel(third.id).await.expect("a live instance");
    client.collect(Duration::ZERO).await.expect("a write");
    check("a collection", [1, 3]).await;
}

#[tokio::test]
async fn a_failed_decode_runs_after_a_deploy_that_reads_the_old_state() {
    let mut test = TestEngine::start(|engine| engine.machine(Strict)).await.expect("it starts");
    let old = NewInstance::named("reader", 1, at_with("Read", json!({"pages": 3})));
    // Past the doors, as a version that took it would have stored it.
    let inserted = test.client().store().insert(vec![old]).await.expect("an insert");
    test.client().store().poke(&inserted.effects);
    let id = inserted.value[0].id();
    test.assert_status(id, Status::Failed).await;
    let failed = test.client().get(id).await.expect("a read").expect("the instance");
    let error = failed.last_error.expect("why it failed");
    assert!(error.contains("Read.pages"), "{error}");
    test.crash_and_deploy(|engine| engine.machine(Lenient)).await.expect("it starts again");
    test.client().retry(id).await.expect("it has failed");
    test.assert_output(id, 3).await;
}

/// Waits until an instance of a running engine has made this many transitions.
async fn wait_for_story(kit: &Kit, id: InstanceId, events: u64) {
    let deadline = tokio::time::Instant::now() + SOON;
    let mut changes = kit.store.hub().changes();
    while kit.get(id).await.seq < events {
        let moved = tokio::time::timeout_at(deadline, changes.changed()).await;
        assert!(moved.is_ok(), "{:?}", kit.history(id).await);
    }
}

/// An instance of the till's first version, which counted in cents.
async fn v1(kit: &Kit, step: &'static str, state: serde_json::Value) -> InstanceId {
    kit.insert(NewInstance::named("till", 1, at_with(step, state))).await
}

/// The till's second version.
struct Till;

#[derive(Serialize, Deserialize)]
enum Counter {
    Start { euros: String },
    Paid { euros: String },
}

impl Machine for Till {
    const NAME: &'static str = "till";
    const VERSION: u32 = 2;
    const MIGRATES_FROM: u32 = 1;
    type State = Counter;
    type Output = String;

    async fn step(&self, state: Counter, _cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Counter::Start { euros } if euros == "0.13 EUR" => Outcome::stop("unlucky"),
            Counter::Start { euros } => Outcome::await_signal(["pay"], Counter::Paid { euros }),
            Counter::Paid { euros } => Outcome::done(euros),
        })
    }

    fn migrate(&self, from_version: u32, at: At) -> Result<At, BoxError> {
        assert_eq!(from_version, 1);
        let old: serde_json::Value = serde_json::from_str(at.state.as_str())?;
        let cents = old["cents"].as_u64().ok_or("it has no cents")?;
        if cents == 666 {
            panic!("the number of the beast");
        }
        let euros = format!("{}.{:02} EUR", cents / 100, cents % 100);
        Ok(At { state: Json::from(json!({ "euros": euros })), ..at })
    }
}

/// A reader whose page count became text by mistake.
struct Strict;

#[derive(Serialize, Deserialize)]
enum StrictState {
    Read { pages: String },
}

impl Machine for Strict {
    const NAME: &'static str = "reader";
    type State = StrictState;
    type Output = u32;

    async fn step(&self, state: StrictState, _cx: &Context) -> StepResult<Self> {
        let StrictState::Read { pages } = state;
        Ok(Outcome::done(pages.parse()?))
    }
}

/// The same machine, mended.
struct Lenient;

#[derive(Serialize, Deserialize)]
enum LenientState {
    Read { pages: u32 },
}

impl Machine for Lenient {
    const NAME: &'static str = "reader";
    type State = LenientState;
    type Output = u32;

    async fn step(&self, state: LenientState, _cx: &Context) -> StepResult<Self> {
        let LenientState::Read { pages } = state;
        Ok(Outcome::done(pages))
    }
}
