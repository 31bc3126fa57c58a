//! Rows that are claimed ahead of places: what becomes of them if their place does not come.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::{Engine, EventKind, InstanceId, NewInstance, Status};
use tokio::sync::Semaphore;

use crate::kit::*;
use crate::slow::Slow;

suite![
    rows_claimed_ahead_are_given_back_at_shutdown_as_if_never_claimed,
    rows_behind_a_long_step_are_run_by_another_engine,
    an_instance_that_is_paused_before_its_step_starts_does_not_start,
    a_queue_that_is_paused_starts_nothing_that_was_claimed_before,
    an_instance_that_is_cancelled_before_its_step_starts_never_runs,
    explain_says_that_a_claimed_row_waits_for_its_place,
    a_long_queue_of_short_steps_is_claimed_in_large_groups_for_a_single_place,
];

/// An engine with one place, whose steps are short but for those at `long`, which wait until they may end.
struct Narrow {
    engine: Engine,
    may_end: Arc<Semaphore>,
    ran: Arc<Mutex<Vec<InstanceId>>>,
}

impl Narrow {
    async fn start(kit: &Kit) -> Self {
        let (may_end, ran) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (held, log) = (may_end.clone(), ran.clone());
        let machine = Slow::new(move |at, cx| {
            log.lock().expect("no panic").push(cx.id());
            let held = held.clone();
            async move {
                if at.step == "long" {
                    held.acquire().await.expect("it is never closed").forget();
                }
                Ok(done())
            }
        });
        let builder = kit.engine().dyn_machine(machine.machine()).queue("default", 1);
        let engine = builder.start().await.expect("the engine starts");
        // It claims ahead once it knows that steps are short here.
        let short = engine.client().start_many(vec![m(); 100]).await.expect("a start");
        for new in short {
            kit.until(new.id(), Status::Done).await;
        }
        Self { engine, may_end, ran }
    }

    /// Starts a long step and short ones behind it, and waits until the long one runs.
    async fn long_and_short(&self, short: usize) -> (InstanceId, Vec<InstanceId>) {
        let long = NewInstance::named("m", 1, at("long")).priority(-1);
        let new = std::iter::once(long).chain(std::iter::repeat_with(m).take(short));
        let ids = self.engine.client().start_many(new).await.expect("a start");
        let mut ids = ids.iter().map(dormouse::Inserted::id);
        let long = ids.next().expect("the long one");
        // A claimed row that waits for its place is `executing`, too.
        while !self.ran.lock().expect("no panic").contains(&long) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        (long, ids.collect())
    }

    fn has_run(&self, id: InstanceId) -> bool {
        self.ran.lock().expect("no panic").contains(&id)
    }
}

async fn rows_claimed_ahead_are_given_back_at_shutdown_as_if_never_claimed(kit: Kit) {
    let narrow = Narrow::start(&kit).await;
    let (long, short) = narrow.long_and_short(20).await;
    let Narrow { engine, may_end, ran } = narrow;
    let stopping = tokio::spawn(engine.shutdown());
    // The queue gives back what waits before the last step ends.
    for id in &short {
        kit.until(*id, Status::Runnable).await;
    }
    may_end.add_permits(1);
    stopping.await.expect("it stops");
    assert!(short.iter().all(|id| !ran.lock().expect("no panic").contains(id)), "they did not run");
    assert_eq!(kit.status(long).await, Status::Done);
    for id in short {
        let back = kit.get(id).await;
        assert_eq!((back.status, back.attempt, back.worker), (Status::Runnable, 0, None));
        assert_eq!(kit.story(id).await, [EventKind::Created], "it leaves no trace");
    }
    kit.check_counts("giving back").await;
}

async fn rows_behind_a_long_step_are_run_by_another_engine(kit: Kit) {
    let narrow = Narrow::start(&kit).await;
    let (long, short) = narrow.long_and_short(20).await;
    let other = kit.run(|_, _| Ok(done())).await;
    for id in &short {
        assert_eq!(kit.until(*id, Status::Done).await.attempt, 0);
        assert!(!narrow.has_run(*id), "its place was taken all the time");
    }
    assert_eq!(kit.status(long).await, Status::Executing);
    narrow.may_end.add_permits(1);
    kit.until(long, Status::Done).await;
    other.shutdown().await;
    narrow.engine.shutdown().await;
}

async fn an_instance_that_is_paused_before_its_step_starts_does_not_start(kit: Kit) {
    let narrow = Narrow::start(&kit).await;
    let (long, short) = narrow.long_and_short(5).await;
    let client = narrow.engine.client();
    client.pause(short[2]).await.expect("a live instance");
    narrow.may_end.add_permits(1);
    kit.until(long, Status::Done).await;
    for id in [0, 1, 3, 4].map(|index| short[index]) {
        kit.until(id, Status::Done).await;
    }
    let paused = kit.get(short[2]).await;
    assert_eq!((paused.status, paused.paused, paused.attempt), (Status::Runnable, true, 0));
    assert!(!narrow.has_run(short[2]));
    client.resume(short[2]).await.expect("a live instance");
    kit.until(short[2], Status::Done).await;
    narrow.engine.shutdown().await;
}

async fn a_queue_that_is_paused_starts_nothing_that_was_claimed_before(kit: Kit) {
    let narrow = Narrow::start(&kit).await;
    let (long, short) = narrow.long_and_short(5).await;
    let client = narrow.engine.client();
    client.pause_queue("default").await.expect("a write");
    narrow.may_end.add_permits(1);
    kit.until(long, Status::Done).await;
    for id in &short {
        kit.until(*id, Status::Runnable).await;
        assert!(!narrow.has_run(*id));
    }
    client.resume_queue("default").await.expect("a write");
    for id in short {
        assert_eq!(kit.until(id, Status::Done).await.attempt, 0);
    }
    narrow.engine.shutdown().await;
}

async fn an_instance_that_is_cancelled_before_its_step_starts_never_runs(kit: Kit) {
    let narrow = Narrow::start(&kit).await;
    let (long, short) = narrow.long_and_short(5).await;
    narrow.engine.client().cancel(short[1]).await.expect("a live instance");
    kit.until(short[1], Status::Cancelled).await;
    narrow.may_end.add_permits(1);
    kit.until(long, Status::Done).await;
    assert!(!narrow.has_run(short[1]));
    narrow.engine.shutdown().await;
}

async fn explain_says_that_a_claimed_row_waits_for_its_place(kit: Kit) {
    let narrow = Narrow::start(&kit).await;
    let client = narrow.engine.client();
    // A row waits for a quarter of a second at most: on a busy machine that may pass before anybody looks.
    for _ in 0..100 {
        let (long, short) = narrow.long_and_short(1).await;
        let explanation = client.explain(short[0]).await.expect("a read");
        narrow.may_end.add_permits(1);
        kit.until(long, Status::Done).await;
        kit.until(short[0], Status::Done).await;
        if explanation.contains("waits for a free place in queue \"default\"") {
            narrow.engine.shutdown().await;
            return;
        }
        // Short steps make it claim ahead again.
        for new in client.start_many(vec![m(); 100]).await.expect("a start") {
            kit.until(new.id(), Status::Done).await;
        }
    }
    panic!("it was never seen to wait");
}

async fn a_long_queue_of_short_steps_is_claimed_in_large_groups_for_a_single_place(kit: Kit) {
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
    let store = Arc::new(crate::faulty::Faulty::on(kit.store.clone()));
    let new = kit.insert_many(vec![m(); 2_000]).await;
    let engine = Engine::on(store.clone())
        .lease(Duration::from_secs(u32::MAX.into()))
        .dyn_machine(machine.machine())
        .queue("default", 1)
        .start()
        .await
        .expect("the engine starts");
    kit.until(new[1_999].id(), Status::Done).await;
    for new in new {
        kit.until(new.id(), Status::Done).await;
    }
    let (claims, commits) = (store.calls("claim"), store.calls("commit"));
    assert_eq!(most.load(Ordering::SeqCst), 1, "one place runs one step at a time");
    assert!(claims < 400 && commits < 1_000, "{claims} claims and {commits} commits for 2,000 steps");
    engine.shutdown().await;
}
