//! What people ask of a schedule.

use dormouse::{Error, Overlap, Schedule, Status};

use super::{MINUTE, create, engine, let_go, minutely, minutes, moment, patient, rest, runs};
use crate::kit::*;

suite![
    a_paused_schedule_starts_nothing_and_then_catches_up,
    a_run_now_starts_one_beside_the_calendar,
    a_run_now_starts_whatever_else_runs,
    a_backfill_starts_each_occurrence_of_a_range_once,
    a_backfill_runs_one_after_the_other_where_overlaps_are_skipped,
    a_change_counts_from_now_on,
    a_change_drops_what_waits_by_another_calendar,
    a_deleted_schedule_starts_nothing_and_its_runs_go_on,
    the_next_occurrences_are_listed,
    live_schedules_are_listed,
    an_unknown_schedule_takes_no_command,
];

async fn a_paused_schedule_starts_nothing_and_then_catches_up(kit: Kit) {
    let engine = engine(&kit).await;
    let client = engine.client();
    create(&client, minutely()).await;
    rest(&kit, "tick").await;
    client.schedules().pause("tick").await.expect("a pause");
    assert!(client.schedules().get("tick").await.expect("a read").expect("a schedule").paused);
    kit.advance(MINUTE * 5);
    // Another schedule of the same minutes shows that the clock was looked at.
    create(&client, Schedule { name: "other".to_owned(), ..minutely() }).await;
    rest(&kit, "other").await;
    kit.advance(MINUTE);
    rest(&kit, "other").await;
    assert!(runs(&kit, "tick").await.is_empty());
    client.schedules().resume("tick").await.expect("a resume");
    let view = rest(&kit, "tick").await;
    assert_eq!(runs(&kit, "tick").await, ["tick@2030-01-01T00:06:00Z"], "the last, as its policy says");
    assert_eq!((view.missed, view.paused), (5, false));
    engine.shutdown().await;
}

async fn a_run_now_starts_one_beside_the_calendar(kit: Kit) {
    let engine = engine(&kit).await;
    create(&engine.client(), minutely()).await;
    rest(&kit, "tick").await;
    engine.client().schedules().run("tick").await.expect("a run");
    engine.client().schedules().run("tick").await.expect("another run of the same moment");
    let view = rest(&kit, "tick").await;
    assert_eq!((view.started, view.next), (2, Some(moment("2030-01-01T00:01:00Z"))));
    let keys = runs(&kit, "tick").await;
    assert!(
        keys.len() == 2 && keys[0] != keys[1] && keys.iter().all(|key| key.ends_with("/run")),
        "{keys:?}"
    );
    engine.shutdown().await;
}

async fn a_run_now_starts_whatever_else_runs(kit: Kit) {
    let engine = patient(&kit).await;
    for (name, overlap) in [("a", Overlap::Skip), ("b", Overlap::Wait), ("c", Overlap::Cancel)] {
        create(&engine.client(), Schedule { name: name.to_owned(), ..minutely() }.overlap(overlap)).await;
        rest(&kit, name).await;
    }
    kit.advance(MINUTE);
    for name in ["a", "b", "c"] {
        rest(&kit, name).await;
        engine.client().schedules().run(name).await.expect("a run");
        assert_eq!(rest(&kit, name).await.started, 2, "{name}");
    }
    engine.shutdown().await;
}

async fn a_backfill_starts_each_occurrence_of_a_range_once(kit: Kit) {
    let engine = engine(&kit).await;
    let schedules = engine.client();
    create(&schedules, minutely().overlap(Overlap::Allow)).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 1).await;
    let (from, to) = (moment("2029-12-31T23:58:00Z"), moment("2030-01-01T00:01:00Z"));
    for _ in 0..2 {
        let count = schedules.schedules().backfill("tick", from, to).await.expect("a backfill");
        assert_eq!(count, 4);
        rest(&kit, "tick").await;
    }
    let mut keys = runs(&kit, "tick").await;
    keys.sort();
    assert_eq!(
        keys,
        [
            "tick@2029-12-31T23:58:00Z",
            "tick@2029-12-31T23:59:00Z",
            "tick@2030-01-01T00:00:00Z",
            "tick@2030-01-01T00:01:00Z"
        ],
        "what the calendar had started, or another backfill, is not started again"
    );
    engine.shutdown().await;
}

async fn a_backfill_runs_one_after_the_other_where_overlaps_are_skipped(kit: Kit) {
    let engine = patient(&kit).await;
    create(&engine.client(), minutely()).await;
    rest(&kit, "tick").await;
    let (from, to) = (moment("2029-12-31T23:58:00Z"), moment("2029-12-31T23:59:00Z"));
    engine.client().schedules().backfill("tick", from, to).await.expect("a backfill");
    assert!(rest(&kit, "tick").await.is_waiting);
    assert_eq!(runs_of(&kit).await, ["tick@2029-12-31T23:58:00Z"]);
    let_go(&kit, "tick@2029-12-31T23:58:00Z").await;
    while runs_of(&kit).await.len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(runs_of(&kit).await[1..], ["tick@2029-12-31T23:59:00Z"]);
    engine.shutdown().await;
}

/// The runs, once the first is there.
async fn runs_of(kit: &Kit) -> Vec<String> {
    loop {
        let runs = runs(kit, "tick").await;
        if !runs.is_empty() {
            return runs;
        }
        tokio::task::yield_now().await;
    }
}

async fn a_change_counts_from_now_on(kit: Kit) {
    let engine = engine(&kit).await;
    let client = engine.client();
    let daily = Schedule::cron("tick", "0 12 * * *").start_named("m", at("start"));
    let id = create(&client, daily).await;
    rest(&kit, "tick").await;
    kit.advance(MINUTE * 10);
    client.schedules().change(minutely()).await.expect("a change");
    let view = rest(&kit, "tick").await;
    assert_eq!((view.id, view.next), (id, Some(moment("2030-01-01T00:11:00Z"))));
    assert!(runs(&kit, "tick").await.is_empty(), "nothing of the past is caught up by the new calendar");
    minutes(&kit, "tick", 1).await;
    assert_eq!(runs(&kit, "tick").await, ["tick@2030-01-01T00:11:00Z"]);
    let refused = client.schedules().change(Schedule::cron("tick", "x").start_named("m", at("start"))).await;
    assert!(matches!(refused, Err(Error::InvalidSchedule { .. })), "{refused:?}");
    let raw = serde_json::json!({ "change": Schedule::cron("tick", "x").start_named("m", at("start")) });
    let sent = dormouse::NewSignal::new("schedule", dormouse::Json::from(raw));
    client.signal_raw(id, sent).await.expect("it has the form of a command");
    let view = rest(&kit, "tick").await;
    assert!(view.error.is_some_and(|error| error.contains("cannot be read")), "a raw one is refused later");
    assert_eq!(view.schedule.when, minutely().when, "and changes nothing");
    engine.shutdown().await;
}

async fn a_change_drops_what_waits_by_another_calendar(kit: Kit) {
    let engine = patient(&kit).await;
    let client = engine.client();
    create(&client, minutely().overlap(Overlap::Wait)).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 3).await;
    let hourly = Schedule::cron("tick", "0 * * * *").start_named("m", at("start")).overlap(Overlap::Wait);
    client.schedules().change(hourly).await.expect("a change");
    let view = rest(&kit, "tick").await;
    assert_eq!((view.started, view.missed, view.is_waiting), (1, 2, false));
    engine.shutdown().await;
}

async fn a_deleted_schedule_starts_nothing_and_its_runs_go_on(kit: Kit) {
    let engine = patient(&kit).await;
    let client = engine.client();
    let id = create(&client, minutely()).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 1).await;
    client.schedules().delete("tick").await.expect("a delete");
    let deleted = kit.until(id, Status::Cancelled).await;
    assert_eq!(deleted.cancel_reason.as_deref(), Some("the schedule was deleted"));
    kit.advance(MINUTE);
    let_go(&kit, "tick@2030-01-01T00:01:00Z").await;
    assert_eq!(
        kit.client().get("tick@2030-01-01T00:01:00Z").await.expect("a read").expect("a run").status,
        Status::Done
    );
    assert!(matches!(client.schedules().run("tick").await, Err(Error::NoSchedule(_))));
    create(&client, minutely()).await;
    engine.shutdown().await;
}

async fn the_next_occurrences_are_listed(kit: Kit) {
    let client = kit.client();
    let engine = engine(&kit).await;
    create(&engine.client(), minutely().zone("Asia/Tokyo")).await;
    let next = client.schedules().next("tick", 2).await.expect("a list");
    assert_eq!(next, [moment("2030-01-01T00:01:00Z"), moment("2030-01-01T00:02:00Z")]);
    assert_eq!(client.schedules().next("tick", 5000).await.expect("a list").len(), 1000, "at most");
    engine.shutdown().await;
}

async fn live_schedules_are_listed(kit: Kit) {
    let engine = engine(&kit).await;
    let client = engine.client();
    for name in ["a", "b", "c"] {
        create(&client, Schedule { name: name.to_owned(), ..minutely() }).await;
        // One whose step runs is deleted when that ends.
        rest(&kit, name).await;
    }
    client.start_many([m().key("schedule:not-one")]).await.expect("an instance with such a key");
    client.schedules().delete("b").await.expect("a delete");
    let (listed, next) = client.schedules().list(None, 100).await.expect("a list");
    let names: Vec<_> = listed.iter().map(|view| view.schedule.name.as_str()).collect();
    assert_eq!((names, next), (vec!["c", "a"], None));
    assert!(client.schedules().get("not-one").await.expect("a read").is_none());
    assert!(matches!(client.schedules().pause("not-one").await, Err(Error::NoSchedule(_))));
    engine.shutdown().await;
}

async fn an_unknown_schedule_takes_no_command(kit: Kit) {
    let client = kit.client();
    let (schedules, at) = (client.schedules(), moment("2029-01-01T00:00:00Z"));
    assert!(matches!(schedules.run("none").await, Err(Error::NoSchedule(_))));
    assert!(matches!(schedules.pause("none").await, Err(Error::NoSchedule(_))));
    assert!(matches!(schedules.resume("none").await, Err(Error::NoSchedule(_))));
    assert!(matches!(schedules.delete("none").await, Err(Error::NoSchedule(_))));
    assert!(matches!(schedules.backfill("none", at, at).await, Err(Error::NoSchedule(_))));
    assert!(matches!(schedules.next("none", 1).await, Err(Error::NoSchedule(_))));
    assert!(matches!(
        schedules.change(Schedule { name: "none".into(), ..minutely() }).await,
        Err(Error::NoSchedule(_))
    ));
    assert!(kit.list(dormouse::store::Filter::default()).await.is_empty());
}
