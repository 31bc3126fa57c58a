//! Claim, lease, reaper.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::store::{Hold, Lease, NewWorker, Receipt};
use dormouse::{EventKind, Status};
use tokio::sync::Semaphore;

use crate::faulty::Faulty;
use crate::kit::*;
use crate::slow::Slow;

suite![
    two_claims_race_one_row_and_one_of_them_gets_it,
    many_claims_at_once_share_the_rows_without_overlap,
    rows_are_claimed_by_priority_then_time,
    a_worker_claims_only_what_it_runs_from_its_own_queue,
    an_outcome_after_the_lease_changes_nothing,
    a_run_ahead_outcome_after_the_lease_changes_nothing,
    a_lost_lease_cannot_be_renewed,
    a_dead_workers_claims_are_taken_back_after_its_lease_and_not_before,
    a_process_that_registers_under_its_old_name_takes_its_claims_back_at_once,
    the_claims_of_a_process_that_is_gone_are_taken_back_at_once,
    a_machine_of_the_same_name_keeps_its_claims,
    a_heartbeat_reports_which_claims_are_held,
    a_crash_counts_as_a_try_and_keeps_the_inputs,
    claims_are_taken_back_in_bounded_batches_until_none_is_left,
    heartbeats_reaps_and_claims_overlap_without_deadlock,
    a_chain_of_steps_runs_ahead_on_one_claim,
    a_higher_priority_arrival_cuts_into_a_long_chain,
    a_queue_runs_no_more_steps_at_a_time_than_it_has_places,
    an_engine_whose_lease_was_lost_drops_its_steps_and_registers_anew,
    a_panic_outside_of_user_code_leaves_no_row_behind,
    two_engines_on_one_store_never_run_the_same_step_twice,
    work_is_found_without_any_poll,
];

async fn two_claims_race_one_row_and_one_of_them_gets_it(kit: Kit) {
    let (a, b) = (kit.worker("a").await, kit.worker("b").await);
    for _ in 0..50 {
        kit.insert(m()).await;
        let (first, second) = tokio::join!(kit.claim(a, 10), kit.claim(b, 10));
        assert_eq!(first.len() + second.len(), 1);
    }
}

async fn many_claims_at_once_share_the_rows_without_overlap(kit: Kit) {
    let kit = Arc::new(kit);
    kit.insert_many(vec![m(); 300]).await;
    let mut claimers = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let kit = kit.clone();
        claimers.push(tokio::spawn(async move {
            let worker = kit.worker(name).await;
            let mut ids = Vec::new();
            loop {
                let claimed = kit.claim(worker, 7).await;
                if claimed.is_empty() {
                    return ids;
                }
                ids.extend(claimed.into_iter().map(|row| row.id));
            }
        }));
    }
    let mut all = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.expect("no panic"));
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 300, "every row once");
}

async fn rows_are_claimed_by_priority_then_time(kit: Kit) {
    let worker = kit.worker("w").await;
    let late_urgent_first = kit.insert(m()).await;
    kit.advance(Duration::from_millis(1));
    let second = kit.insert(m()).await;
    let lazy = kit.insert(m().priority(5)).await;
    kit.advance(Duration::from_millis(1));
    let urgent = kit.insert(m().priority(-1)).await;
    let order: Vec<_> = kit.claim(worker, 10).await.into_iter().map(|row| row.id).collect();
    assert_eq!(order, [urgent, late_urgent_first, second, lazy]);
}

async fn a_worker_claims_only_what_it_runs_from_its_own_queue(kit: Kit) {
    let worker = kit.worker("w").await;
    let mut other_version = m();
    other_version.version = 2;
    let mut other_machine = m();
    other_machine.machine = "other".to_owned();
    kit.insert_many(vec![other_version, other_machine, m().queue("elsewhere")]).await;
    assert!(kit.claim(worker, 10).await.is_empty());
    assert_eq!(kit.claim_from(worker, "elsewhere", &[("m", 1)], 10).await.len(), 1);
    assert_eq!(kit.claim_from(worker, "default", &[("m", 2), ("other", 1)], 10).await.len(), 2);
}

async fn an_outcome_after_the_lease_changes_nothing(kit: Kit) {
    let slow = kit.worker_with_lease("slow", Duration::from_secs(1)).await;
    let fast = kit.worker("fast").await;
    let id = kit.insert(m().lane("l")).await;
    let behind = kit.insert(m().lane("l")).await;
    let lost = kit.claim_one(slow).await;
    kit.advance(Duration::from_secs(2));
    assert_eq!(kit.reap().await, 1);
    let again = kit.claim_one(fast).await;
    assert_eq!((again.id, again.attempt), (id, 1));
    let before = (kit.get(id).await, kit.get(behind).await, kit.stats().await.instances);
    let children = spawn(vec![m(), m()], "join");
    for outcome in [
        next("n"),
        done(),
        fail("late"),
        sleep("s", Duration::from_secs(1)),
        replay("start", Duration::ZERO),
        wait_for(&["x"], "y"),
        dormouse::Transition::Spawn(children),
    ] {
        assert!(matches!(kit.commit(slow, commit(&lost, outcome)).await, Receipt::Stale));
    }
    let after = (kit.get(id).await, kit.get(behind).await, kit.stats().await.instances);
    assert_eq!(before, after, "not the row, not its lane, no children");
    assert!(matches!(kit.commit(fast, commit(&again, done())).await, Receipt::Released));
}

async fn a_run_ahead_outcome_after_the_lease_changes_nothing(kit: Kit) {
    let slow = kit.worker_with_lease("slow", Duration::from_secs(1)).await;
    let id = kit.insert(m()).await;
    let mut late = commit(&kit.claim_one(slow).await, next("n"));
    late.hold = Hold::Keep;
    kit.advance(Duration::from_secs(2));
    kit.reap().await;
    let before = kit.get(id).await;
    assert!(matches!(kit.commit(slow, late.clone()).await, Receipt::Stale));
    let again = kit.worker("again").await;
    kit.claim_one(again).await;
    // Whoever says it, the old outcome is of another time.
    assert!(matches!(kit.commit(again, late).await, Receipt::Stale));
    assert_eq!(kit.get(id).await.seq, before.seq);
}

async fn a_lost_lease_cannot_be_renewed(kit: Kit) {
    let lease = Duration::from_secs(10);
    let worker = kit.worker_with_lease("w", lease).await;
    kit.advance(Duration::from_secs(9));
    let renewed = kit.store.heartbeat(worker, lease).await.expect("a heartbeat");
    assert_eq!(renewed, Lease::Held { cancel: vec![], holds: vec![] });
    kit.advance(Duration::from_secs(9));
    assert!(matches!(kit.store.heartbeat(worker, lease).await, Ok(Lease::Held { .. })), "it was renewed");
    kit.advance(Duration::from_secs(11));
    assert_eq!(kit.store.heartbeat(worker, lease).await.expect("a heartbeat"), Lease::Lost);
    kit.reap().await;
    assert_eq!(kit.store.heartbeat(worker, lease).await.expect("a heartbeat"), Lease::Lost);
}

async fn a_dead_workers_claims_are_taken_back_after_its_lease_and_not_before(kit: Kit) {
    let dead = kit.worker_with_lease("dead", Duration::from_secs(10)).await;
    let id = kit.insert(m()).await;
    kit.claim_one(dead).await;
    kit.advance(Duration::from_secs(9));
    assert_eq!(kit.reap().await, 0);
    assert_eq!(kit.status(id).await, Status::Executing);
    kit.advance(Duration::from_secs(2));
    assert_eq!(kit.reap().await, 1);
    let back = kit.get(id).await;
    assert_eq!((back.status, back.attempt, back.worker), (Status::Runnable, 1, None));
    assert_eq!(kit.story(id).await, [EventKind::Created, EventKind::Reaped]);
}

async fn a_process_that_registers_under_its_old_name_takes_its_claims_back_at_once(kit: Kit) {
    let before = kit.worker("shop-1").await;
    let other = kit.worker("shop-2").await;
    kit.insert_many(vec![m(), m()]).await;
    let mine = kit.claim_one(before).await;
    let theirs = kit.claim_one(other).await;
    let after = kit.worker("shop-1").await;
    assert_ne!(before, after);
    assert_eq!(kit.reap().await, 1);
    assert_eq!(kit.status(mine.id).await, Status::Runnable);
    assert_eq!(kit.status(theirs.id).await, Status::Executing, "another worker's claims are its own");
}

async fn the_claims_of_a_process_that_is_gone_are_taken_back_at_once(kit: Kit) {
    let mut process = std::process::Command::new("true").spawn().expect("a process");
    let pid = process.id();
    process.wait().expect("it ends");
    let worker = NewWorker {
        name: "gone".to_owned(),
        process: dormouse::Process { pid, ..dormouse::Process::current() },
        namespaces: dormouse::store::Namespaces::All,
        lease: Duration::from_secs(1000),
        queues: vec![],
        machines: vec![],
        transports: vec![],
        declares: vec![],
    };
    let live = kit.worker("live").await;
    let gone = kit.store.register(worker).await.expect("a worker");
    let id = kit.insert(m()).await;
    kit.claim_one(gone).await;
    assert_eq!(kit.reap().await, 1, "whoever was running beside it takes over");
    assert_eq!(kit.claim_one(live).await.id, id);
}

/// Cloned machines share their host name, and outside of containers the number of their process namespace.
async fn a_machine_of_the_same_name_keeps_its_claims(kit: Kit) {
    let here = dormouse::Process::current();
    let boot = here.birth.split(':').next().expect("the id of this boot").to_owned();
    let birth = here.birth.replacen(&boot, "5a9c3d0e-0000-4000-8000-000000000000", 1);
    let process = dormouse::Process { pid: 999_999_999, birth, ..here };
    let clone = NewWorker { process, ..kit.new_worker("clone") };
    let clone = kit.store.register(clone).await.expect("a worker");
    let id = kit.insert(m()).await;
    kit.claim_one(clone).await;
    kit.worker("beside it").await;
    assert_eq!(kit.reap().await, 0, "nothing here can tell whether it lives: its lease decides");
    assert_eq!(kit.status(id).await, Status::Executing);
}

async fn a_heartbeat_reports_which_claims_are_held(kit: Kit) {
    let worker = kit.worker("w").await;
    let held = async || match kit.store.heartbeat(worker, Duration::from_secs(1000)).await {
        Ok(Lease::Held { holds, .. }) => holds,
        other => panic!("the lease is held: {other:?}"),
    };
    let id = kit.insert(m()).await;
    let first = kit.claim_one(worker).await;
    assert_eq!(held().await, [(id, first.seq)]);
    kit.commit(worker, commit(&first, next("n"))).await;
    assert!(held().await.is_empty());
    let second = kit.claim_one(worker).await;
    assert_ne!(first.seq, second.seq);
    assert_eq!(held().await, [(id, second.seq)], "another claim of the same instance is another claim");
}

async fn a_crash_counts_as_a_try_and_keeps_the_inputs(kit: Kit) {
    let id = kit.insert(m()).await;
    let first = kit.worker("w").await;
    let claimed = kit.claim_one(first).await;
    kit.commit(first, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    kit.deliver(id, signal("paid")).await;
    for attempt in 0..3 {
        let worker = kit.worker("w").await;
        kit.reap().await;
        // From the second crash in a row on, it rests for a moment.
        kit.advance(Duration::from_secs(1));
        kit.due().await;
        let claimed = kit.claim_one(worker).await;
        assert_eq!((claimed.attempt, received(&claimed).len()), (attempt, 1));
    }
}

async fn claims_are_taken_back_in_bounded_batches_until_none_is_left(kit: Kit) {
    let dead = kit.worker_with_lease("dead", Duration::from_secs(1)).await;
    kit.insert_many(vec![m(); 250]).await;
    assert_eq!(kit.claim(dead, 250).await.len(), 250);
    kit.advance(Duration::from_secs(2));
    let mut batches = Vec::new();
    loop {
        let reaped = kit.store.reap(100, 10).await.expect("a sweep").value;
        batches.push(reaped);
        if reaped < 100 {
            break;
        }
    }
    assert_eq!(batches, [100, 100, 50]);
    assert!(kit.stats().await.workers.is_empty(), "the dead worker's row goes with its last claim");
}

async fn heartbeats_reaps_and_claims_overlap_without_deadlock(kit: Kit) {
    let kit = Arc::new(kit);
    kit.insert_many(vec![m(); 100]).await;
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let kit = kit.clone();
            tokio::spawn(async move {
                for _ in 0..30 {
                    let worker = kit.worker(&format!("w{}", n % 3)).await;
                    let claimed = kit.claim(worker, 5).await;
                    let _ = kit.store.heartbeat(worker, Duration::from_secs(1000)).await;
                    let commits = claimed.iter().map(|row| commit(row, next("n"))).collect();
                    kit.commit_many(worker, commits).await;
                    kit.reap().await;
                    // Those that crashed again rest for a moment.
                    kit.advance(Duration::from_secs(1));
                    kit.due().await;
                }
            })
        })
        .collect();
    for task in tasks {
        tokio::time::timeout(SOON, task).await.expect("no deadlock").expect("no panic");
    }
    // Whatever the order was, nothing is lost and nothing is left with a worker that is gone.
    kit.worker("w0").await;
    kit.worker("w1").await;
    kit.worker("w2").await;
    kit.reap().await;
    kit.advance(Duration::from_secs(300));
    kit.due().await;
    assert_eq!(kit.stats().await.count(Status::Runnable), 100);
}

async fn a_chain_of_steps_runs_ahead_on_one_claim(kit: Kit) {
    let store = Arc::new(Faulty::on(kit.store.clone()));
    let engine = dormouse::Engine::on(store.clone())
        .dyn_machine(Script::named("m", |at, _| Ok(if at.step == "start" { next("b") } else { done() })))
        .poll(Duration::from_secs(3600))
        .start()
        .await
        .expect("the engine starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    kit.until(id, Status::Done).await;
    let rows = store.calls("claim");
    assert!(rows <= 4, "one claim that finds it, and looks at an empty queue before and after: {rows}");
    use EventKind::*;
    assert_eq!(kit.story(id).await, [Created, StepCompleted, Done]);
    engine.shutdown().await;
}

async fn a_higher_priority_arrival_cuts_into_a_long_chain(kit: Kit) {
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = steps.clone();
    let machine = Slow::new(move |at, cx| {
        let counted = counted.clone();
        async move {
            if at.step == "urgent" {
                return Ok(done());
            }
            counted.fetch_add(1, Ordering::SeqCst);
            // It would run for ever; only an urgent one that got its place lets it end.
            Ok(if cx.is_cancelled() { done() } else { next("start") })
        }
    });
    let engine = kit
        .engine()
        .dyn_machine(machine.machine())
        .queue("default", 1)
        .run_ahead(4, Duration::from_secs(3600))
        .start()
        .await
        .expect("the engine starts");
    let client = engine.client();
    let chain = client.start_many([m()]).await.expect("a start")[0].id();
    let urgent = dormouse::NewInstance::named("m", 1, at("urgent")).priority(-1);
    let urgent = client.start_many([urgent]).await.expect("a start")[0].id();
    kit.until(urgent, Status::Done).await;
    assert!(!kit.status(chain).await.is_terminal(), "the chain had not ended before");
    client.cancel(chain).await.expect("a cancel");
    kit.until(chain, Status::Cancelled).await;
    engine.shutdown().await;
}

async fn a_queue_runs_no_more_steps_at_a_time_than_it_has_places(kit: Kit) {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, seen) = (now.clone(), most.clone());
    let machine = Slow::new(move |_, _| {
        let (now, most) = (counted.clone(), seen.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(done())
        }
    });
    let engine = kit
        .engine()
        .dyn_machine(machine.machine())
        .queue("default", 3)
        .start()
        .await
        .expect("the engine starts");
    let inserted = engine.client().start_many(vec![m(); 60]).await.expect("a start");
    for new in inserted {
        kit.until(new.id(), Status::Done).await;
    }
    assert!(most.load(Ordering::SeqCst) <= 3);
    engine.shutdown().await;
}

async fn an_engine_whose_lease_was_lost_drops_its_steps_and_registers_anew(kit: Kit) {
    let runs = Arc::new(AtomicUsize::new(0));
    let hold = Arc::new(Semaphore::new(0));
    let (counted, held) = (runs.clone(), hold.clone());
    let machine = Slow::new(move |_, _| {
        let (runs, hold) = (counted.clone(), held.clone());
        async move {
            if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                // The first run never ends by itself: only losing the lease gets rid of it.
                let _ = hold.acquire().await;
            }
            Ok(done())
        }
    });
    let engine = dormouse::Engine::on(kit.store.clone())
        .dyn_machine(machine.machine())
        .lease(Duration::from_millis(90))
        .start()
        .await
        .expect("the engine starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    let held = kit.until(id, Status::Executing).await;
    // As if the process had been stopped for longer than its lease.
    kit.store.deregister(held.worker.expect("it has a worker")).await.expect("a write");
    let ended = kit.until(id, Status::Done).await;
    assert_eq!((ended.attempt, runs.load(Ordering::SeqCst)), (1, 2));
    engine.shutdown().await;
}

async fn a_panic_outside_of_user_code_leaves_no_row_behind(kit: Kit) {
    struct Odd(AtomicUsize);
    impl dormouse::DynMachine for Odd {
        fn name(&self) -> &str {
            "m"
        }
        fn version(&self) -> u32 {
            1
        }
        fn steps(&self) -> Vec<String> {
            Vec::new()
        }
        fn step_timeout(&self) -> Option<Duration> {
            assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "the engine did not expect this");
            None
        }
        fn migrate(&self, _from: u32, at: dormouse::At) -> Result<dormouse::At, dormouse::BoxError> {
            Ok(at)
        }
        fn check(&self, _at: &dormouse::At) -> Result<(), String> {
            Ok(())
        }
        fn step<'a>(&'a self, _at: &'a dormouse::At, _cx: &'a dormouse::Context) -> dormouse::Running<'a> {
            Box::pin(std::future::ready(Ok(done())))
        }
        fn handle<'a>(
            &'a self,
            error: dormouse::StepError,
            _at: &'a dormouse::At,
            _cx: &'a dormouse::Context,
        ) -> dormouse::Running<'a> {
            Box::pin(std::future::ready(Ok(fail(&error.to_string()))))
        }
    }
    let machine = Arc::new(Odd(AtomicUsize::new(0)));
    let engine = kit.engine().dyn_machine(machine).start().await.expect("the engine starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    assert_eq!(kit.until(id, Status::Done).await.attempt, 1, "it was taken back and run again");
    engine.shutdown().await;
}

async fn two_engines_on_one_store_never_run_the_same_step_twice(kit: Kit) {
    let runs = Arc::new(AtomicUsize::new(0));
    let mut engines = Vec::new();
    for _ in 0..2 {
        let runs = runs.clone();
        engines.push(
            kit.run(move |_, _| {
                runs.fetch_add(1, Ordering::SeqCst);
                Ok(done())
            })
            .await,
        );
    }
    let inserted = engines[0].client().start_many(vec![m(); 400]).await.expect("a start");
    for new in inserted {
        kit.until(new.id(), Status::Done).await;
    }
    assert_eq!(runs.load(Ordering::SeqCst), 400);
    for engine in engines {
        engine.shutdown().await;
    }
}

async fn work_is_found_without_any_poll(kit: Kit) {
    let never = Duration::from_secs(3600);
    let engine = kit
        .engine()
        .dyn_machine(Script::named("m", |at, cx| {
            Ok(match at.step.as_ref() {
                "start" => sleep("slept", Duration::from_secs(60)),
                "slept" => wait_for(&["go"], "woken"),
                "woken" if cx.attempt() == 0 => replay("woken", Duration::from_secs(5)),
                _ => done(),
            })
        }))
        .poll(never)
        .start()
        .await
        .expect("the engine starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    kit.until(id, Status::Scheduled).await;
    kit.advance(Duration::from_secs(60));
    kit.until(id, Status::AwaitingSignal).await;
    engine.client().signal_raw(id, signal("go")).await.expect("a live target");
    kit.until(id, Status::Scheduled).await;
    kit.advance(Duration::from_secs(5));
    kit.until(id, Status::Done).await;
    engine.shutdown().await;
}
