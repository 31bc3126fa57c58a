//! Overlap, catch-up, jitter, begin, end and count.

use std::time::Duration;

use dormouse::jiff::SignedDuration;
use dormouse::{CatchUp, Missed, MissedWhy, Overlap, Schedule, Status};

use super::{HOUR, MINUTE, all_runs, create, engine, let_go, minutely, minutes, moment, patient, rest, runs};
use crate::kit::*;

suite![
    an_occurrence_that_meets_a_live_run_is_skipped,
    runs_may_overlap_where_they_are_allowed_to,
    occurrences_wait_in_line_and_start_in_order,
    a_running_one_is_cancelled_before_the_next_starts,
    a_run_whose_end_nobody_reports_holds_up_the_line_only_for_a_while,
    after_downtime_nothing_is_caught_up_unless_asked_for,
    after_downtime_the_last_is_caught_up,
    after_downtime_all_within_the_window_are_caught_up_each_with_its_moment,
    many_that_are_caught_up_start_in_several_commits,
    jitter_delays_an_occurrence_by_its_own_fixed_share,
    it_happens_from_its_begin_to_its_end_and_is_done,
    it_is_done_after_so_many_runs,
];

async fn an_occurrence_that_meets_a_live_run_is_skipped(kit: Kit) {
    let engine = patient(&kit).await;
    create(&engine.client(), minutely()).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 3).await;
    assert_eq!(runs(&kit, "tick").await, ["tick@2030-01-01T00:01:00Z"]);
    let view = rest(&kit, "tick").await;
    assert_eq!((view.missed, view.running), (2, 1));
    let missed = Missed { at: moment("2030-01-01T00:03:00Z"), count: 2, why: MissedWhy::Overlap };
    assert_eq!(view.recently_missed, [missed]);
    let_go(&kit, "tick@2030-01-01T00:01:00Z").await;
    minutes(&kit, "tick", 1).await;
    assert_eq!(runs(&kit, "tick").await[1..], ["tick@2030-01-01T00:04:00Z"]);
    engine.shutdown().await;
}

async fn runs_may_overlap_where_they_are_allowed_to(kit: Kit) {
    let engine = patient(&kit).await;
    create(&engine.client(), minutely().overlap(Overlap::Allow)).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 3).await;
    for run in all_runs(&kit, "tick").await {
        kit.until(run.id, Status::AwaitingSignal).await;
    }
    assert_eq!(runs(&kit, "tick").await.len(), 3);
    engine.shutdown().await;
}

async fn occurrences_wait_in_line_and_start_in_order(kit: Kit) {
    let engine = patient(&kit).await;
    create(&engine.client(), minutely().overlap(Overlap::Wait)).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 3).await;
    let keys = ["tick@2030-01-01T00:01:00Z", "tick@2030-01-01T00:02:00Z", "tick@2030-01-01T00:03:00Z"];
    for (index, key) in keys.iter().enumerate() {
        let run = until_run(&kit, key).await;
        kit.until(run, Status::AwaitingSignal).await;
        assert_eq!(runs(&kit, "tick").await, keys[..=index], "the others wait");
        assert_eq!(rest(&kit, "tick").await.is_waiting, index < 2);
        let_go(&kit, key).await;
    }
    let view = rest(&kit, "tick").await;
    assert_eq!((view.started, view.missed), (3, 0));
    engine.shutdown().await;
}

async fn a_running_one_is_cancelled_before_the_next_starts(kit: Kit) {
    let engine = patient(&kit).await;
    create(&engine.client(), minutely().overlap(Overlap::Cancel)).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 1).await;
    let first = until_run(&kit, "tick@2030-01-01T00:01:00Z").await;
    kit.until(first, Status::AwaitingSignal).await;
    kit.advance(MINUTE);
    let cancelled = kit.until(first, Status::Cancelled).await;
    assert_eq!(
        cancelled.cancel_reason.as_deref(),
        Some("a later occurrence of its schedule takes its place")
    );
    let second = until_run(&kit, "tick@2030-01-01T00:02:00Z").await;
    assert!(kit.get(second).await.created_at >= cancelled.ended_at.expect("it ended"));
    engine.shutdown().await;
}

async fn a_run_whose_end_nobody_reports_holds_up_the_line_only_for_a_while(kit: Kit) {
    let engine = patient(&kit).await;
    let hourly = Schedule::cron("tick", "0 * * * *").start_named("m", at("start")).overlap(Overlap::Wait);
    create(&engine.client(), hourly).await;
    rest(&kit, "tick").await;
    kit.advance(HOUR);
    rest(&kit, "tick").await;
    kit.advance(HOUR);
    rest(&kit, "tick").await;
    let run = until_run(&kit, "tick@2030-01-01T01:00:00Z").await;
    let watcher = kit.get(run).await.parent.expect("what waits for its end");
    engine.client().cancel(watcher).await.expect("a cancel");
    kit.advance(MINUTE);
    until_run(&kit, "tick@2030-01-01T02:00:00Z").await;
    engine.shutdown().await;
}

/// Lets an hour pass in which nobody is there, and then half a minute.
async fn away(kit: &Kit, schedule: Schedule) -> dormouse::Engine {
    let first = engine(kit).await;
    create(&first.client(), schedule).await;
    rest(kit, "tick").await;
    first.shutdown().await;
    kit.advance(HOUR + Duration::from_secs(30));
    let second = engine(kit).await;
    rest(kit, "tick").await;
    second
}

async fn after_downtime_nothing_is_caught_up_unless_asked_for(kit: Kit) {
    let engine = away(&kit, minutely().catch_up(CatchUp::None)).await;
    assert!(runs(&kit, "tick").await.is_empty());
    let view = rest(&kit, "tick").await;
    assert_eq!((view.started, view.missed), (0, 60));
    let missed = Missed { at: moment("2030-01-01T01:00:00Z"), count: 60, why: MissedWhy::Late };
    assert_eq!(view.recently_missed, [missed]);
    minutes(&kit, "tick", 1).await;
    assert_eq!(runs(&kit, "tick").await.len(), 0, "half a minute late is missed");
    kit.advance(Duration::from_secs(29));
    rest(&kit, "tick").await;
    kit.advance(Duration::from_secs(9));
    rest(&kit, "tick").await;
    assert_eq!(runs(&kit, "tick").await, ["tick@2030-01-01T01:02:00Z"], "a few seconds late is not");
    engine.shutdown().await;
}

async fn after_downtime_the_last_is_caught_up(kit: Kit) {
    let engine = away(&kit, minutely().catch_up(CatchUp::Last)).await;
    assert_eq!(runs(&kit, "tick").await, ["tick@2030-01-01T01:00:00Z"], "with its own moment");
    let view = rest(&kit, "tick").await;
    assert_eq!((view.started, view.missed), (1, 59));
    engine.shutdown().await;
}

async fn after_downtime_all_within_the_window_are_caught_up_each_with_its_moment(kit: Kit) {
    let within = CatchUp::Within(SignedDuration::from_mins(3));
    let engine = away(&kit, minutely().catch_up(within).overlap(Overlap::Allow)).await;
    assert_eq!(
        runs(&kit, "tick").await,
        ["tick@2030-01-01T00:58:00Z", "tick@2030-01-01T00:59:00Z", "tick@2030-01-01T01:00:00Z"]
    );
    let view = rest(&kit, "tick").await;
    assert_eq!((view.started, view.missed), (3, 57));
    engine.shutdown().await;
}

async fn many_that_are_caught_up_start_in_several_commits(kit: Kit) {
    let within = CatchUp::Within(SignedDuration::from_mins(10));
    let every = Schedule::every("tick", Duration::from_secs(2)).start_named("m", at("start"));
    let engine = away(&kit, every.catch_up(within).overlap(Overlap::Allow)).await;
    let view = rest(&kit, "tick").await;
    assert_eq!((view.started, view.missed), (301, 1815 - 301));
    assert_eq!(runs(&kit, "tick").await.len(), 301);
    engine.shutdown().await;
}

async fn jitter_delays_an_occurrence_by_its_own_fixed_share(kit: Kit) {
    let engine = engine(&kit).await;
    let jitter = Duration::from_secs(30);
    for name in ["one", "two", "tick"] {
        let schedule = Schedule { name: name.to_owned(), ..minutely() };
        create(&engine.client(), schedule.jitter(jitter)).await;
    }
    let mut due = Vec::new();
    for name in ["one", "two", "tick"] {
        let at = rest(&kit, name).await.next.expect("a next moment");
        let nominal = moment("2030-01-01T00:01:00Z");
        assert!(nominal <= at && at < nominal + jitter, "{at}");
        due.push(at);
    }
    assert!(due[0] != due[1] && due[1] != due[2], "each has its own: {due:?}");
    kit.advance(
        Duration::try_from(due[2].duration_since(kit.now())).expect("ahead") - Duration::from_micros(1),
    );
    rest(&kit, "tick").await;
    assert!(runs(&kit, "tick").await.is_empty());
    kit.advance(Duration::from_micros(1));
    rest(&kit, "tick").await;
    assert_eq!(
        runs(&kit, "tick").await,
        ["tick@2030-01-01T00:01:00Z"],
        "its key has the moment without jitter"
    );
    engine.shutdown().await;
}

async fn it_happens_from_its_begin_to_its_end_and_is_done(kit: Kit) {
    let engine = engine(&kit).await;
    let schedule = minutely().from(moment("2030-01-01T00:02:00Z")).until(moment("2030-01-01T00:03:00Z"));
    let id = create(&engine.client(), schedule).await;
    let next = engine.client().schedules().next("tick", 10).await.expect("a list");
    assert_eq!(next, [moment("2030-01-01T00:02:00Z"), moment("2030-01-01T00:03:00Z")]);
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 3).await;
    assert_eq!(runs(&kit, "tick").await, ["tick@2030-01-01T00:02:00Z", "tick@2030-01-01T00:03:00Z"]);
    let output = kit.until(id, Status::Done).await.output.expect("its output");
    assert_eq!(output.as_str(), r#"{"started":2,"missed":0}"#);
    assert!(engine.client().schedules().next("tick", 10).await.expect("a list").is_empty());
    create(&engine.client(), minutely()).await;
    engine.shutdown().await;
}

async fn it_is_done_after_so_many_runs(kit: Kit) {
    let engine = engine(&kit).await;
    let id = create(&engine.client(), minutely().runs_max(2)).await;
    assert_eq!(engine.client().schedules().next("tick", 10).await.expect("a list").len(), 2);
    rest(&kit, "tick").await;
    engine.client().schedules().run("tick").await.expect("a run");
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 2).await;
    kit.until(id, Status::Done).await;
    assert_eq!(runs(&kit, "tick").await.len(), 3, "one that was asked for does not count");
    engine.shutdown().await;
}

/// Waits until there is a run with a key.
async fn until_run(kit: &Kit, key: &str) -> dormouse::InstanceId {
    let deadline = tokio::time::Instant::now() + SOON;
    let mut changes = kit.store.hub().changes();
    loop {
        changes.borrow_and_update();
        if let Some(run) = kit.client().get(key).await.expect("a read") {
            return run.id;
        }
        let changed = tokio::time::timeout_at(deadline, changes.changed()).await;
        assert!(changed.is_ok(), "there is no run {key}: {:?}", kit.client().schedules().get("tick").await);
    }
}
