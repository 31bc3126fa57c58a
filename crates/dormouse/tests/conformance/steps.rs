//! What a step may do wrong, and what becomes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::{EventKind, Fault, Json, Limits, Status};

use crate::kit::*;
use crate::slow::Slow;

suite![
    an_error_goes_to_the_handler_which_may_return_any_outcome,
    a_panic_goes_to_the_handler,
    a_step_over_its_time_goes_to_the_handler,
    a_handler_that_fails_or_panics_fails_the_instance_with_both_reasons,
    a_state_the_code_does_not_know_fails_that_instance_alone,
    an_outcome_that_cannot_be_stored_goes_to_the_handler,
    the_default_handler_stops_and_tells_the_chain_of_causes,
    a_retry_policy_replays_with_backoff_until_it_gives_up,
    a_job_is_a_machine_with_one_step_and_twenty_tries,
    every_outcome_can_be_returned_from_a_typed_machine,
    the_context_tells_who_and_when,
    a_failed_step_keeps_its_state_as_last_committed,
];

fn failing<F>(fault: F) -> Slow
where
    F: Fn() -> Result<dormouse::Transition, Fault> + Send + Sync + 'static,
{
    Slow::new(move |at, _| {
        let result = if at.step == "start" { fault() } else { Ok(done()) };
        async move { result }
    })
}

async fn run_to_end(kit: &Kit, machine: Slow) -> dormouse::Instance {
    let engine = kit.engine().dyn_machine(machine.machine()).start().await.expect("the engine starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    engine.shutdown().await;
    ended
}

async fn an_error_goes_to_the_handler_which_may_return_any_outcome(kit: Kit) {
    let machine = failing(|| Err(Fault::Failed("the warehouse is closed".into()))).handle(|error| {
        assert_eq!(error.to_string(), "the warehouse is closed");
        Ok(next("elsewhere"))
    });
    assert_eq!(run_to_end(&kit, machine).await.status, Status::Done);
}

async fn a_panic_goes_to_the_handler(kit: Kit) {
    let ended = run_to_end(&kit, failing(|| panic!("a bug on line {}", 7))).await;
    assert_eq!(ended.last_error.as_deref(), Some("handled: the step panicked: a bug on line 7"));
    let worker = kit.worker("w").await;
    kit.insert(m()).await;
    assert_eq!(kit.claim(worker, 1).await.len(), 1, "nothing is stuck");
}

async fn a_step_over_its_time_goes_to_the_handler(kit: Kit) {
    let machine = Slow::new(|_, _| std::future::pending()).timeout(Duration::from_millis(20));
    let ended = run_to_end(&kit, machine).await;
    assert_eq!(ended.last_error.as_deref(), Some("handled: the step ran longer than its limit of 20ms"));
}

async fn a_handler_that_fails_or_panics_fails_the_instance_with_both_reasons(kit: Kit) {
    let fails =
        failing(|| Err(Fault::Failed("first".into()))).handle(|_| Err(Fault::Failed("second".into())));
    let ended = run_to_end(&kit, fails).await;
    assert_eq!(ended.status, Status::Failed);
    assert_eq!(ended.last_error.as_deref(), Some("first (and its handler failed: second)"));
    let panics = failing(|| Err(Fault::Failed("first".into()))).handle(|_| panic!("third"));
    let ended = run_to_end(&kit, panics).await;
    assert!(ended.last_error.expect("an error").contains("third"));
}

async fn a_state_the_code_does_not_know_fails_that_instance_alone(kit: Kit) {
    let engine = kit.engine().machine(Counter).start().await.expect("the engine starts");
    let client = engine.client();
    let odd = NewInstance::named("counter", 1, at_with("Count", serde_json::json!({ "left": "three" })));
    let unknown = NewInstance::named("counter", 1, at("Gone"));
    let good = NewInstance::of::<Counter>(Counting::Count { left: 3 });
    // Past the doors, as a version that took them would have stored them.
    let ids = kit.store.insert(vec![odd, unknown, good]).await.expect("an insert").value;
    let odd = client.wait_end(ids[0].id(), SOON).await.expect("it ends");
    let reason = odd.last_error.expect("a reason");
    assert!(reason.contains("Count.left") && reason.contains("three"), "{reason}");
    let unknown = client.wait_end(ids[1].id(), SOON).await.expect("it ends");
    assert!(unknown.last_error.expect("a reason").contains("unknown variant `Gone`"));
    assert_eq!(client.wait::<Counter>(ids[2].id(), SOON).await.expect("an output"), 3);
    engine.shutdown().await;
}

async fn an_outcome_that_cannot_be_stored_goes_to_the_handler(kit: Kit) {
    let long = "n".repeat(256);
    let bad = [
        wait_for(&[], "x"),
        wait_for(&[&long], "x"),
        wait_for(&["bell\u{7}"], "x"),
        dormouse::Transition::Next { at: at(""), ahead: true },
        dormouse::Transition::Next { at: at_with("big", serde_json::json!("x".repeat(2000))), ahead: true },
        dormouse::Transition::Done { output: Json::from(serde_json::json!("x".repeat(2000))) },
        replay("elsewhere", Duration::ZERO),
        dormouse::Transition::Spawn(spawn(vec![m().key("")], "x")),
        dormouse::Transition::Spawn(spawn(vec![m(); 11], "x")),
        dormouse::Transition::Spawn(dormouse::Spawn {
            quorum: Some(dormouse::Quorum::Done(0)),
            ..spawn(vec![m()], "x")
        }),
    ];
    let count = bad.len();
    let bad = Arc::new(bad);
    let engine = kit
        .engine()
        .limits(Limits { document_bytes_max: 1000, children_max: 10, ..Limits::default() })
        .dyn_machine(
            Slow::new(move |at, _| {
                let transition = bad[at.state.decode::<usize>("state").expect("a number")].clone();
                async move { Ok(transition) }
            })
            .machine(),
        )
        .start()
        .await
        .expect("the engine starts");
    for index in 0..count {
        let new = NewInstance::named("m", 1, at_with("start", serde_json::json!(index)));
        let id = engine.client().start_many([new]).await.expect("a start")[0].id();
        let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
        let reason = ended.last_error.expect("a reason");
        assert!(ended.status == Status::Failed && reason.starts_with("handled: the "), "{index}: {reason}");
    }
    engine.shutdown().await;
}

async fn the_default_handler_stops_and_tells_the_chain_of_causes(kit: Kit) {
    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);
    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "the order number is wrong")
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    struct Fails;
    impl Machine for Fails {
        const NAME: &'static str = "fails";
        type State = Counting;
        type Output = u32;
        async fn step(&self, _state: Counting, _cx: &Context) -> StepResult<Self> {
            Ok(Outcome::done("x".parse::<u32>().map_err(Outer)?))
        }
    }
    let engine = kit.engine().machine(Fails).start().await.expect("the engine starts");
    let id = engine.client().start::<Fails>(Counting::Count { left: 1 }).await.expect("a start");
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!(ended.last_error.as_deref(), Some("the order number is wrong: invalid digit found in string"));
    engine.shutdown().await;
}

async fn a_retry_policy_replays_with_backoff_until_it_gives_up(kit: Kit) {
    struct Flaky(Arc<AtomicU32>);
    impl Machine for Flaky {
        const NAME: &'static str = "flaky";
        type State = Counting;
        type Output = u32;
        async fn step(&self, _state: Counting, cx: &Context) -> StepResult<Self> {
            self.0.fetch_max(cx.attempt() + 1, Ordering::SeqCst);
            Err("not today".into())
        }
        fn retry(&self) -> Retry {
            Retry::times(3).backoff(Duration::from_secs(10), Duration::from_secs(15))
        }
    }
    let tries = Arc::new(AtomicU32::new(0));
    let engine = kit.engine().machine(Flaky(tries.clone())).start().await.expect("the engine starts");
    let id = engine.client().start::<Flaky>(Counting::Count { left: 1 }).await.expect("a start");
    let first = kit.until(id, Status::Scheduled).await;
    assert_eq!((first.attempt, first.last_error.as_deref()), (1, Some("not today")));
    let wait = first.wake_at.expect("a moment").duration_since(kit.now());
    assert!(wait.as_secs() >= 5 && wait.as_secs() <= 10, "{wait}");
    kit.advance(Duration::from_secs(15));
    loop {
        if kit.get(id).await.attempt == 2 && kit.status(id).await == Status::Scheduled {
            break;
        }
        tokio::task::yield_now().await;
    }
    kit.advance(Duration::from_secs(15));
    let ended = kit.until(id, Status::Failed).await;
    assert_eq!((ended.last_error.as_deref(), tries.load(Ordering::SeqCst)), (Some("not today"), 3));
    use EventKind::*;
    assert_eq!(kit.story(id).await, [Created, StepRetried, TimerFired, StepRetried, TimerFired, Failed]);
    engine.shutdown().await;
}

async fn a_job_is_a_machine_with_one_step_and_twenty_tries(kit: Kit) {
    struct Double(Arc<AtomicU32>);
    impl Job for Double {
        const NAME: &'static str = "double";
        type Input = u32;
        type Output = u32;
        async fn run(&self, input: u32, cx: &Context) -> Result<u32, BoxError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            if input == 0 || (input == 1 && cx.attempt() == 0) {
                Err("nothing to double".into())
            } else {
                Ok(input * 2)
            }
        }
    }
    let runs = Arc::new(AtomicU32::new(0));
    let engine = kit.engine().job(Double(runs.clone())).start().await.expect("the engine starts");
    let client = engine.client();
    let good = client.start_job::<Double>(21).await.expect("a start");
    assert_eq!(client.wait_job::<Double>(good, SOON).await.expect("an output"), 42);
    runs.store(0, Ordering::SeqCst);
    let bad = client.start_job::<Double>(0).await.expect("a start");
    for _ in 0..19 {
        let before = kit.until(bad, Status::Scheduled).await.attempt;
        kit.advance(Duration::from_secs(600));
        while kit.get(bad).await.attempt == before && !kit.status(bad).await.is_terminal() {
            tokio::task::yield_now().await;
        }
    }
    kit.until(bad, Status::Failed).await;
    assert_eq!(runs.load(Ordering::SeqCst), 20);
    engine.shutdown().await;
}

async fn every_outcome_can_be_returned_from_a_typed_machine(kit: Kit) {
    const GO: Signal<u32> = Signal::named("go");
    struct All;
    #[derive(Serialize, Deserialize)]
    enum Place {
        Start,
        Replayed { tries: u32 },
        Slept,
        Signalled,
        Joined { sum: u32 },
    }
    impl Machine for All {
        const NAME: &'static str = "all";
        type State = Place;
        type Output = u32;
        async fn step(&self, place: Place, cx: &Context) -> StepResult<Self> {
            Ok(match place {
                Place::Start => Outcome::next(Place::Replayed { tries: 0 }),
                Place::Replayed { tries: 2 } => Outcome::sleep(cx.now(), Place::Slept),
                Place::Replayed { tries } => {
                    Outcome::replay(Place::Replayed { tries: tries + 1 }, Duration::ZERO)
                }
                Place::Slept => Outcome::await_signal(GO, Place::Signalled),
                Place::Signalled => {
                    let counted = cx.received(GO)?.into_iter().map(|left| Counting::Count { left });
                    let children: Vec<_> = counted.map(NewInstance::of::<Counter>).collect();
                    Outcome::spawn(
                        Round::of(children).timeout(Duration::from_secs(60)),
                        Place::Joined { sum: 1 },
                    )
                }
                Place::Joined { sum } => Outcome::done(sum + cx.outputs::<u32>()?.iter().sum::<u32>()),
            })
        }
    }
    let engine = kit.engine().machine(All).machine(Counter).start().await.expect("the engine starts");
    let id = engine.client().start::<All>(Place::Start).await.expect("a start");
    engine.client().signal(id, GO, 4).await.expect("a live target");
    assert_eq!(engine.client().wait::<All>(id, SOON).await.expect("an output"), 5);
    engine.shutdown().await;
}

async fn the_context_tells_who_and_when(kit: Kit) {
    let now = kit.now();
    let engine = kit
        .run(move |_, cx| {
            assert_eq!((cx.key(), cx.namespace(), cx.attempt(), cx.seq()), (Some("k"), "default", 0, 1));
            assert_eq!((cx.now(), cx.wake(), cx.is_cancelled(), cx.inbox().len()), (now, None, false, 1));
            Ok(done())
        })
        .await;
    let new = m().key("k").signal(signal("hello"));
    let id = engine.client().start_many([new]).await.expect("a start")[0].id();
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!((ended.status, ended.last_error), (Status::Done, None));
    engine.shutdown().await;
}

async fn a_failed_step_keeps_its_state_as_last_committed(kit: Kit) {
    let machine = Slow::new(|at, _| async move {
        if at.step == "start" {
            return Ok(dormouse::Transition::Next {
                at: at_with("second", serde_json::json!({ "n": 1 })),
                ahead: true,
            });
        }
        Err(Fault::Failed("no".into()))
    });
    let ended = run_to_end(&kit, machine).await;
    assert_eq!((ended.step.as_str(), ended.state.as_str()), ("second", r#"{"n":1}"#));
}

struct Counter;

#[derive(Serialize, Deserialize)]
enum Counting {
    Count { left: u32 },
}

impl Machine for Counter {
    const NAME: &'static str = "counter";
    type State = Counting;
    type Output = u32;

    async fn step(&self, Counting::Count { left }: Counting, _cx: &Context) -> StepResult<Self> {
        Ok(Outcome::done(left))
    }
}
