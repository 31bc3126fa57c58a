//! Runs of steps: when they started, how long they took, what they reported, and what follows in the same claim.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Commit, NewProgress, Reports};
use dormouse::{Error, EventKind, Json, NewInstance, Run, Status, Transition};
use serde_json::json;
use tokio::sync::Notify;

use crate::kit::*;

suite![
    an_event_tells_the_run_of_its_step,
    a_run_that_ends_is_told_with_its_end,
    an_engine_records_each_run,
    progress_is_seen_while_the_step_runs_and_kept_with_its_outcome,
    a_report_of_another_run_is_left_out,
    a_report_that_is_too_large_is_refused,
    a_step_may_give_its_row_back_instead_of_running_ahead,
    an_instance_settles_when_it_is_parked_or_has_ended,
    a_machine_that_nobody_declares_is_started_only_if_asked_for,
    children_in_another_queue_and_their_join_are_poked,
];

fn run(took_us: u64, started_at: jiff::Timestamp) -> Option<Run> {
    Some(Run { started_at, took_us, progress: Some(Json::from(json!({ "rows": took_us }))) })
}

async fn an_event_tells_the_run_of_its_step(kit: Kit) {
    let worker = kit.worker("w").await;
    let outcomes = [
        (next("b"), EventKind::StepCompleted),
        (sleep("b", Duration::ZERO), EventKind::StepCompleted),
        (replay("start", Duration::from_secs(1)), EventKind::StepRetried),
        (wait_for(&["never"], "b"), EventKind::SignalWaiting),
        (
            Transition::Spawn(spawn(vec![NewInstance::named("c", 1, at("start"))], "b")),
            EventKind::ChildrenSpawned,
        ),
        (done(), EventKind::Done),
        (fail("no"), EventKind::Failed),
    ];
    for (took_us, (outcome, kind)) in (1_000_u64..).zip(outcomes) {
        let id = kit.insert(m()).await;
        let claimed = kit.claim_one(worker).await;
        let run = run(took_us, kit.now());
        kit.commit(worker, Commit { run: run.clone(), ..commit(&claimed, outcome) }).await;
        let history = kit.history(id).await;
        assert_eq!((history[0].run.as_ref(), history[1].kind), (None, kind), "nobody ran to create it");
        assert_eq!(history[1].run, run, "{kind}");
        if kit.status(id).await == Status::Runnable {
            let claimed = kit.claim_one(worker).await;
            kit.commit(worker, commit(&claimed, done())).await;
            assert_eq!(kit.history(id).await.last().expect("its end").run, None, "no run was told");
        }
        kit.advance(Duration::from_micros(1));
    }
}

async fn a_run_that_ends_is_told_with_its_end(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let mut claimed = kit.claim_one(worker).await;
    let hold = dormouse::store::Hold::Keep;
    for took_us in [1, 2] {
        let run = run(took_us, kit.now());
        kit.commit(worker, Commit { run, hold, ..commit(&claimed, next("b")) }).await;
        claimed.seq += 1;
    }
    kit.commit(worker, Commit { run: run(3, kit.now()), ..commit(&claimed, done()) }).await;
    let took: Vec<_> =
        kit.history(id).await.iter().map(|event| event.run.as_ref().map(|run| run.took_us)).collect();
    assert_eq!(took, [None, Some(1), Some(2), Some(3)], "those that ran ahead too");
}

async fn an_engine_records_each_run(kit: Kit) {
    let before = kit.now();
    let engine =
        kit.run(|at, _| Ok(if &*at.step == "start" { wait_for(&["go"], "end") } else { done() })).await;
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    kit.until(id, Status::AwaitingSignal).await;
    kit.advance(Duration::from_secs(60));
    engine.client().signal_raw(id, signal("go")).await.expect("it waits");
    kit.until(id, Status::Done).await;
    let history = kit.history(id).await;
    let [created, waiting, received, ended] = &history[..] else { panic!("{history:?}") };
    assert_eq!((&created.run, &received.run), (&None, &None), "no step led to these");
    let minute = jiff::SignedDuration::from_secs(60);
    let [first, second] = [waiting, ended].map(|event| event.run.clone().expect("a run"));
    assert!(first.started_at >= before && first.started_at < before + minute, "{first:?}");
    assert!(second.started_at >= before + minute, "{second:?}");
    engine.shutdown().await;
}

/// Counts the runs of `m` whose steps report, and waits to be let go.
struct Reporting {
    told: Arc<Notify>,
    go: Arc<Notify>,
}

#[derive(Serialize, Deserialize)]
enum Report {
    Import {},
}

impl Machine for Reporting {
    const NAME: &'static str = "reporting";
    type State = Report;
    type Output = ();

    async fn step(&self, _state: Report, cx: &Context) -> StepResult<Self> {
        for rows in [10, 20, 30] {
            cx.progress(&json!({ "rows": rows }))?;
        }
        self.told.notify_one();
        self.go.notified().await;
        cx.progress(&json!({ "rows": 40 }))?;
        Ok(Outcome::done(()))
    }
}

async fn progress_is_seen_while_the_step_runs_and_kept_with_its_outcome(kit: Kit) {
    let (told, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let machine = Reporting { told: told.clone(), go: go.clone() };
    let engine = kit.engine().machine(machine).start().await.expect("it starts");
    let client = engine.client();
    let mut changes = kit.store.hub().changes();
    let id = client.start::<Reporting>(Report::Import {}).await.expect("a start");
    told.notified().await;
    let seen = loop {
        changes.borrow_and_update();
        if let Some(seen) = client.progress(id).await.expect("a read") {
            break seen;
        }
        tokio::time::timeout(SOON, changes.changed()).await.expect("its report is written").expect("a hub");
    };
    assert_eq!((seen.instance, seen.step.as_str(), seen.machine.as_str()), (id, "Import", "reporting"));
    assert_eq!(seen.value.as_str(), r#"{"rows":30}"#, "the last of them, in one write");
    let newest = kit.store.reports(Reports::Newest, 1).await.expect("a read");
    assert_eq!(newest, std::slice::from_ref(&seen));
    assert_eq!(kit.store.reports(Reports::After(seen.place - 1), 10).await.expect("a read"), newest);
    assert_eq!(kit.store.reports(Reports::After(seen.place), 10).await.expect("a read"), []);
    go.notify_one();
    client.wait::<Reporting>(id, SOON).await.expect("its end");
    assert_eq!(client.progress(id).await.expect("a read"), None, "nothing runs any more");
    let end = kit.history(id).await.pop().expect("an end");
    let kept = end.run.expect("its run").progress.expect("its last report");
    assert_eq!(kept.as_str(), r#"{"rows":40}"#, "what came too late to be seen is kept all the same");
    engine.shutdown().await;
}

async fn a_report_of_another_run_is_left_out(kit: Kit) {
    let (worker, other) = (kit.worker("w").await, kit.worker("other").await);
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let report = |seq| vec![NewProgress { instance: id, seq, value: Json::from(json!(seq)) }];
    let seen = || async { kit.store.reports(Reports::Of(id), 1).await.expect("a read").pop() };
    kit.store.report(other, report(claimed.seq)).await.expect("a report");
    kit.store.report(worker, report(claimed.seq + 1)).await.expect("a report");
    assert_eq!(seen().await, None);
    let first = kit.store.report(worker, report(claimed.seq)).await.expect("a report");
    assert_eq!(first.effects.queues.len(), 1, "those who watch in other processes are poked");
    let place = seen().await.expect("a report").place;
    kit.store.report(worker, report(claimed.seq)).await.expect("a report");
    assert!(seen().await.expect("a report").place > place, "each is news");
    kit.commit(worker, commit(&claimed, next("b"))).await;
    assert_eq!(seen().await, None, "the run is over");
}

async fn a_report_that_is_too_large_is_refused(kit: Kit) {
    let engine = kit
        .run(|_, cx| {
            let refused = cx.progress(&"x".repeat(9_000)).expect_err("it is over 8 KiB");
            assert!(
                matches!(refused, Error::TooLarge { what: "progress", limit_bytes: 8192, .. }),
                "{refused}"
            );
            assert!(matches!(cx.progress("nul \0"), Err(Error::HoldsNul { .. })));
            Ok(done())
        })
        .await;
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    kit.until(id, Status::Done).await;
    assert_eq!(kit.history(id).await[1].run.as_ref().expect("a run").progress, None);
    engine.shutdown().await;
}

async fn a_step_may_give_its_row_back_instead_of_running_ahead(kit: Kit) {
    for (ahead, expected) in [(true, [1, 1, 2, 2]), (false, [1, 2, 1, 2])] {
        let order = Arc::new(Mutex::new(Vec::new()));
        let ran = order.clone();
        let machine = Script::named("m", move |at, cx| {
            ran.lock().expect("a list").push(cx.key().expect("a key").parse::<i32>().expect("a number"));
            Ok(if &*at.step == "start" {
                Transition::Next { at: crate::kit::at("end"), ahead }
            } else {
                done()
            })
        });
        let ids: Vec<_> = kit
            .insert_many(vec![m().key("1"), m().key("2")])
            .await
            .iter()
            .map(dormouse::Inserted::id)
            .collect();
        // Time moves, so that a row that is given back stands behind the one that waits.
        kit.advance(Duration::from_secs(1));
        let engine = kit.engine().queue("default", 1).dyn_machine(machine).start().await.expect("it starts");
        for id in ids {
            kit.until(id, Status::Done).await;
        }
        assert_eq!(*order.lock().expect("a list"), expected, "ahead: {ahead}");
        engine.shutdown().await;
    }
}

async fn an_instance_settles_when_it_is_parked_or_has_ended(kit: Kit) {
    let go = Arc::new(Notify::new());
    let engine =
        kit.run(|at, _| Ok(if &*at.step == "start" { wait_for(&["go"], "end") } else { done() })).await;
    let client = engine.client();
    let id = client.start_many([m().key("k")]).await.expect("a start")[0].id();
    assert_eq!(client.wait_settled("k", SOON).await.expect("it parks").status, Status::AwaitingSignal);
    client.signal_raw(id, signal("go")).await.expect("it waits");
    assert_eq!(client.wait_settled(id, SOON).await.expect("it ends").status, Status::Done);
    let missing = client.wait_settled("nobody", SOON).await.expect_err("there is no such key");
    assert!(matches!(missing, Error::NotFound(_)), "{missing}");
    engine.shutdown().await;

    let machine = Reporting { told: Arc::default(), go: go.clone() };
    let engine = kit.engine().machine(machine).start().await.expect("it starts");
    let id = engine.client().start::<Reporting>(Report::Import {}).await.expect("a start");
    kit.until(id, Status::Executing).await;
    let live = engine.client().wait_settled(id, Duration::ZERO).await.expect_err("it runs");
    assert!(matches!(live, Error::StillLive { .. }), "{live}");
    go.notify_one();
    engine.shutdown().await;
}

async fn a_machine_that_nobody_declares_is_started_only_if_asked_for(kit: Kit) {
    let client = kit.client();
    let import = || dormouse::At { step: "Import".into(), state: Json::from(serde_json::json!({})) };
    let named = |name: &str| NewInstance::named(name.to_owned(), 1, import());
    let refused = client.start_many([named("reporting")]).await.expect_err("no worker was ever there");
    assert!(matches!(refused, Error::UnknownMachine { nearest: None, .. }), "{refused}");
    let typed = client.start::<Reporting>(Report::Import {}).await;
    typed.expect("its type declares it");
    let machine = Reporting { told: Arc::default(), go: Arc::default() };
    let engine = kit.engine().machine(machine).queue("other", 1).start().await.expect("it starts");
    client.start_many([named("reporting")]).await.expect("it is declared now, to clients elsewhere too");
    for client in [engine.client(), kit.client()] {
        let refused =
            client.start_many([named("reporting"), named("reportign")]).await.expect_err("misspelt");
        let Error::UnknownMachine { machine, nearest } = &refused else { panic!("{refused}") };
        assert_eq!((machine.as_str(), nearest.as_deref()), ("reportign", Some("reporting")));
        assert!(refused.to_string().contains("did you mean \"reporting\"?"), "{refused}");
    }
    assert_eq!(kit.stats().await.count(Status::Runnable), 2, "nothing of a refused batch is stored");
    client.start_many([named("reportign").even_if_unknown()]).await.expect("as asked for");
    engine.shutdown().await;
}

async fn children_in_another_queue_and_their_join_are_poked(kit: Kit) {
    let never = Duration::from_secs(u32::MAX.into());
    let parent = Script::named("m", |at, _| {
        let child = NewInstance::named("c", 1, crate::kit::at("start")).queue("other");
        Ok(if &*at.step == "start" { Transition::Spawn(spawn(vec![child; 3], "join")) } else { done() })
    });
    let child = Script::named("c", |_, _| Ok(done()));
    let here = kit.engine().poll(never).dyn_machine(parent).start().await.expect("it starts");
    let there = kit.engine().poll(never).worker_name("there").queue("other", 2).dyn_machine(child);
    let there = there.start().await.expect("it starts");
    let id = here.client().start_many([m()]).await.expect("a start")[0].id();
    kit.until(id, Status::Done).await;
    here.shutdown().await;
    there.shutdown().await;
}
