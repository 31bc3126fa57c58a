//! Group commit, faults of the store, and stopping.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::store::Receipt;
use dormouse::{Engine, Error, Status, Transition};
use tokio::sync::Semaphore;

use crate::faulty::Faulty;
use crate::kit::*;
use crate::slow::Slow;

suite![
    a_group_of_outcomes_is_one_call_of_the_store,
    a_group_of_large_outcomes_is_bounded_in_bytes,
    one_bad_row_in_a_group_fails_alone,
    a_stale_outcome_in_a_group_does_not_hold_up_the_others,
    two_outcomes_of_one_claim_in_a_group_are_one_commit_and_one_that_is_stale,
    a_store_that_fails_for_a_while_loses_nothing,
    an_outcome_is_not_blamed_for_a_store_that_takes_no_write_at_all,
    no_step_goes_on_before_its_outcome_is_durable,
    many_callers_at_once_all_get_their_own_answer,
    shutdown_lets_running_steps_commit,
    shutdown_releases_what_outlasts_the_drain_time,
    shutdown_starts_no_new_step,
    a_dropped_engine_is_a_crash_and_the_next_one_takes_over,
    engines_on_different_stores_do_not_hear_of_each_other,
];

async fn a_group_of_outcomes_is_one_call_of_the_store(kit: Kit) {
    let store = Arc::new(Faulty::on(kit.store.clone()));
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let machine = Slow::new(move |_, _| {
        let gate = held.clone();
        async move {
            let _ = gate.acquire().await;
            Ok(done())
        }
    });
    let engine = Engine::on(store.clone())
        .dyn_machine(machine.machine())
        .queue("default", 200)
        .start()
        .await
        .expect("a start");
    let ids = engine.client().start_many(vec![m(); 200]).await.expect("a start");
    kit.until(ids[199].id(), Status::Executing).await;
    gate.add_permits(10_000);
    for id in ids {
        kit.until(id.id(), Status::Done).await;
    }
    let calls = store.calls("commit");
    assert!(calls <= 50, "200 outcomes that came together took {calls} commits");
    engine.shutdown().await;
}

async fn a_group_of_large_outcomes_is_bounded_in_bytes(kit: Kit) {
    const OUTCOMES: u32 = 40;
    const BYTES: usize = 900_000;
    let largest = Arc::new(AtomicUsize::new(0));
    let seen = largest.clone();
    let store = Faulty::on(kit.store.clone()).refuse_commit(move |batch| {
        let states = batch.iter().filter_map(|commit| commit.transition.at());
        seen.fetch_max(states.map(|at| at.state.as_str().len()).sum(), Ordering::SeqCst);
        None
    });
    let (running, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (began, held) = (running.clone(), gate.clone());
    let machine = Slow::new(move |_, _| {
        let (began, held) = (began.clone(), held.clone());
        async move {
            began.add_permits(1);
            held.acquire().await.expect("it stays open").forget();
            let at = at_with("ship", serde_json::json!("x".repeat(BYTES)));
            Ok(Transition::Await { at, names: vec!["paid".to_owned()], timeout: None })
        }
    });
    let engine =
        Engine::on(Arc::new(store)).dyn_machine(machine.machine()).queue("default", OUTCOMES as usize);
    let engine = engine.start().await.expect("a start");
    let ids = engine.client().start_many(vec![m(); OUTCOMES as usize]).await.expect("a start");
    running.acquire_many(OUTCOMES).await.expect("it stays open").forget();
    gate.add_permits(OUTCOMES as usize);
    for id in ids {
        kit.until(id.id(), Status::AwaitingSignal).await;
    }
    let largest = largest.load(Ordering::SeqCst);
    assert!((2 * BYTES..18 << 20).contains(&largest), "the largest group of outcomes has {largest} bytes");
    engine.shutdown().await;
}

async fn one_bad_row_in_a_group_fails_alone(mut kit: Kit) {
    kit.refuse_rows_at("poison").await;
    let (running, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (began, held) = (running.clone(), gate.clone());
    let machine = Slow::new(move |at, _| {
        let (began, held) = (began.clone(), held.clone());
        async move {
            began.add_permits(1);
            held.acquire().await.expect("it stays open").forget();
            Ok(if at.state.as_str() == "13" { wait_for(&["never"], "poison") } else { done() })
        }
    });
    let engine = kit.engine().dyn_machine(machine.machine()).start().await.expect("the engine starts");
    let new = (0..30).map(|n| m_at(at_with("start", serde_json::json!(n))));
    let ids = engine.client().start_many(new).await.expect("a start");
    // All of them run before any of them ends, so that their outcomes come together.
    running.acquire_many(30).await.expect("it stays open").forget();
    gate.add_permits(30);
    for (n, id) in ids.iter().enumerate() {
        let ended = engine.client().wait_end(id.id(), SOON).await.expect("it ends");
        if n == 13 {
            let reason = ended.last_error.expect("a reason");
            assert!(
                ended.status == Status::Failed && reason.contains("this row cannot be stored"),
                "{reason}"
            );
        } else {
            assert_eq!(ended.status, Status::Done);
        }
    }
    engine.shutdown().await;
}

async fn a_stale_outcome_in_a_group_does_not_hold_up_the_others(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert_many(vec![m(), m(), m()]).await;
    let claimed = kit.claim(worker, 3).await;
    let mut commits: Vec<_> = claimed.iter().map(|row| commit(row, done())).collect();
    commits[1].head.seq += 1;
    let receipts = kit.commit_many(worker, commits).await;
    assert!(matches!(receipts[..], [Receipt::Released, Receipt::Stale, Receipt::Released]));
    assert_eq!(kit.status(claimed[1].id).await, Status::Executing);
}

async fn two_outcomes_of_one_claim_in_a_group_are_one_commit_and_one_that_is_stale(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    kit.deliver(id, signal("paid")).await;
    let woken = kit.claim_one(worker).await;
    let waits = commit(&woken, wait_for(&["paid"], "ship"));
    let consumes = commit(&woken, next("end"));
    let receipts = kit.commit_many(worker, vec![waits, consumes]).await;
    assert!(matches!(receipts[..], [Receipt::Released, Receipt::Stale]), "{receipts:?}");
    assert_eq!(kit.client().inbox(id).await.expect("a read").len(), 1, "the stale one consumed nothing");
    kit.story(id).await;
}

async fn a_store_that_fails_for_a_while_loses_nothing(kit: Kit) {
    let store = Arc::new(Faulty::on(kit.store.clone()));
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let engine = Engine::on(store.clone())
        .dyn_machine(Script::named("m", move |at, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(if at.step == "start" { sleep("end", Duration::from_secs(1)) } else { done() })
        }))
        .poll(Duration::from_millis(50))
        .start()
        .await
        .expect("the engine starts");
    for verb in ["claim", "commit", "due", "heartbeat", "reap"] {
        store.refuse_next(verb, 2);
    }
    let ids = engine.client().start_many(vec![m(); 20]).await.expect("a start");
    for id in &ids {
        kit.until(id.id(), Status::Scheduled).await;
    }
    for verb in ["claim", "commit", "due"] {
        store.refuse_next(verb, 2);
    }
    kit.advance(Duration::from_secs(1));
    for id in &ids {
        kit.until(id.id(), Status::Done).await;
        kit.story(id.id()).await;
    }
    assert_eq!(runs.load(Ordering::SeqCst), 40, "a commit that failed is committed again, not run again");
    engine.shutdown().await;
}

async fn an_outcome_is_not_blamed_for_a_store_that_takes_no_write_at_all(kit: Kit) {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = refused.clone();
    let store = Arc::new(Faulty::on(kit.store.clone()).refuse_commit(move |_| {
        // For longer than a single bad row would be given.
        let broken = counted.fetch_add(1, Ordering::SeqCst) < 7;
        broken.then(|| Error::Storage("an I/O error".into()))
    }));
    let script = Script::named("m", |_, _| Ok(done()));
    let engine = Engine::on(store.clone()).dyn_machine(script).start().await.expect("the engine starts");
    store.refuse_next("heartbeat", 100);
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!((ended.status, ended.attempt, refused.load(Ordering::SeqCst)), (Status::Done, 0, 8));
    engine.shutdown().await;
}

async fn no_step_goes_on_before_its_outcome_is_durable(kit: Kit) {
    let committed = Arc::new(AtomicBool::new(false));
    let seen = committed.clone();
    let store = Arc::new(Faulty::on(kit.store.clone()).refuse_commit(move |_| {
        // The first commit fails; until it has been tried again, the next step must not have started.
        (!seen.swap(true, Ordering::SeqCst)).then(|| Error::Busy("not yet".into()))
    }));
    let early = Arc::new(AtomicBool::new(false));
    let (noted, checked) = (early.clone(), committed.clone());
    let inner = kit.store.clone();
    let machine = Slow::new(move |at, cx| {
        let (inner, early, committed) = (inner.clone(), noted.clone(), checked.clone());
        async move {
            if at.step == "start" {
                return Ok(next("second"));
            }
            let row =
                inner.get("default".to_owned(), cx.id().into()).await.expect("a read").expect("it is there");
            early.store(row.step != "second" || !committed.load(Ordering::SeqCst), Ordering::SeqCst);
            Ok(done())
        }
    });
    let engine = Engine::on(store).dyn_machine(machine.machine()).start().await.expect("the engine starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    kit.until(id, Status::Done).await;
    assert!(!early.load(Ordering::SeqCst));
    engine.shutdown().await;
}

async fn many_callers_at_once_all_get_their_own_answer(kit: Kit) {
    let callers: Vec<_> = (0..100)
        .map(|n| {
            let client = kit.client();
            tokio::spawn(async move {
                let id = client.start_many([m().key(format!("k{n}"))]).await.expect("a start")[0].id();
                client.signal_raw(id, signal("s").dedup("d")).await.expect("a live target");
                (n, id)
            })
        })
        .collect();
    for caller in callers {
        let (n, id) = caller.await.expect("no panic");
        let row = kit.get(id).await;
        assert_eq!((row.key.as_deref(), row.inbox), (Some(format!("k{n}").as_str()), 1));
    }
}

async fn shutdown_lets_running_steps_commit(kit: Kit) {
    let gate = Arc::new(Semaphore::new(0));
    let runs = Arc::new(Semaphore::new(0));
    let (held, told) = (gate.clone(), runs.clone());
    let machine = Slow::new(move |at, _| {
        let gate = held.clone();
        told.add_permits(1);
        async move {
            if at.step == "start" {
                let _ = gate.acquire().await;
            }
            Ok(if at.step == "start" { next("second") } else { done() })
        }
    });
    let engine = kit.engine().dyn_machine(machine.machine()).start().await.expect("the engine starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    runs.acquire().await.expect("its step runs").forget();
    let stopping = tokio::spawn(engine.shutdown());
    gate.add_permits(1);
    stopping.await.expect("it stops");
    let row = kit.get(id).await;
    assert_eq!((row.step.as_str(), row.attempt), ("second", 0), "its outcome was committed");
    assert!(kit.stats().await.workers.is_empty(), "the worker is deregistered");
}

async fn shutdown_releases_what_outlasts_the_drain_time(kit: Kit) {
    let runs = Arc::new(Semaphore::new(0));
    let told = runs.clone();
    let machine = Slow::new(move |_, _| {
        told.add_permits(1);
        std::future::pending()
    });
    let engine = kit
        .engine()
        .dyn_machine(machine.machine())
        .drain(Duration::from_millis(10))
        .start()
        .await
        .expect("the engine starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    runs.acquire().await.expect("its step runs").forget();
    engine.shutdown().await;
    let row = kit.get(id).await;
    assert_eq!((row.status, row.attempt, row.worker), (Status::Runnable, 1, None));
}

async fn shutdown_starts_no_new_step(kit: Kit) {
    let engine = kit.run(|_, _| Ok(done())).await;
    let client = engine.client();
    engine.shutdown().await;
    let id = client.start_many([m()]).await.expect("a start")[0].id();
    assert!(client.explain(id).await.expect("a read").contains("no worker is live"));
}

async fn a_dropped_engine_is_a_crash_and_the_next_one_takes_over(kit: Kit) {
    let machine = Slow::new(|_, cx| async move {
        if cx.attempt() == 0 { std::future::pending().await } else { Ok(done()) }
    })
    .machine();
    let start = || kit.engine().worker_name("shop-1").dyn_machine(machine.clone()).start();
    let engine = start().await.expect("the engine starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    kit.until(id, Status::Executing).await;
    drop(engine);
    let engine = start().await.expect("the engine starts");
    let ended = kit.until(id, Status::Done).await;
    assert_eq!(ended.attempt, 1);
    engine.shutdown().await;
}

async fn engines_on_different_stores_do_not_hear_of_each_other(kit: Kit) {
    let other = Kit::sqlite_memory();
    let here = kit.run(|_, _| Ok(dormouse::Transition::Done { output: "\"here\"".parse_json() })).await;
    let there = other.run(|_, _| Ok(dormouse::Transition::Done { output: "\"there\"".parse_json() })).await;
    let id = here.client().start_many([m()]).await.expect("a start")[0].id();
    let same_id = there.client().start_many([m()]).await.expect("a start")[0].id();
    assert_eq!(id, same_id, "two databases count for themselves");
    assert_eq!(kit.until(id, Status::Done).await.output.expect("an output").as_str(), "\"here\"");
    assert_eq!(other.until(id, Status::Done).await.output.expect("an output").as_str(), "\"there\"");
    here.shutdown().await;
    there.shutdown().await;
}

trait ParseJson {
    fn parse_json(&self) -> dormouse::Json;
}

impl ParseJson for str {
    fn parse_json(&self) -> dormouse::Json {
        dormouse::Json::parse("test", self).expect("it is JSON")
    }
}
