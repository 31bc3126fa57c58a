//! Schedules: what starts when, and once.

mod commands;
mod declared;
mod input;
mod policies;

use std::time::Duration;

use dormouse::jiff::Timestamp;
use dormouse::jiff::tz::TimeZone;
use dormouse::store::Namespaces;
use dormouse::{CatchUp, Client, Engine, EventKind, Instance, Overlap, Schedule, ScheduleView, Status};

use crate::kit::*;

suite![
    each_occurrence_starts_once_with_its_moment_in_its_key,
    an_occurrence_is_filled_into_the_state,
    what_it_starts_gets_its_queue_priority_lane_share_and_tags,
    a_schedule_starts_the_newest_version,
    failing_runs_never_end_it,
    several_engines_start_each_occurrence_once,
    an_engine_that_dies_at_an_occurrence_loses_none_and_doubles_none,
    a_clock_that_jumps_back_starts_nothing_again,
    what_is_collected_is_not_started_again,
    a_schedule_is_an_instance_like_any_other,
    a_skipped_and_a_doubled_hour_start_a_daily_one_once,
    leap_days_and_a_zone_that_moves_are_followed,
    an_occurrence_starts_at_its_moment,
    it_is_served_where_its_runs_are,
];

pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// Every minute, of `m` at `start`.
pub(super) fn minutely() -> Schedule {
    Schedule::cron("tick", "* * * * *").start_named("m", at("start"))
}

/// An engine whose `m` is done at once.
pub(super) async fn engine(kit: &Kit) -> Engine {
    kit.run(|_, _| Ok(done())).await
}

/// An engine whose `m` waits for the signal `go`.
pub(super) async fn patient(kit: &Kit) -> Engine {
    kit.run(|at, _| Ok(if at.step == "start" { wait_for(&["go"], "end") } else { done() })).await
}

/// The schedule, once it waits for its next moment and has taken every command.
pub(super) async fn rest(kit: &Kit, name: &str) -> ScheduleView {
    let client = kit.client();
    let deadline = tokio::time::Instant::now() + SOON;
    let mut changes = kit.store.hub().changes();
    loop {
        changes.borrow_and_update();
        let view = client.schedules().get(name).await.expect("a read").expect("the schedule is there");
        let waits = view.status == Status::AwaitingSignal && view.next.is_none_or(|at| at > kit.now());
        if waits || view.status.is_terminal() {
            return view;
        }
        if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
            let why = client.explain(view.id).await.expect("a read");
            panic!("the schedule does not rest: {why}: {view:?}");
        }
    }
}

/// The keys of a schedule's runs, oldest first.
pub(super) async fn runs(kit: &Kit, name: &str) -> Vec<String> {
    all_runs(kit, name).await.into_iter().map(|run| run.key.expect("a key")).collect()
}

pub(super) async fn all_runs(kit: &Kit, name: &str) -> Vec<Instance> {
    let mut runs = kit.client().schedules().runs(name, 1000).await.expect("a read");
    runs.reverse();
    runs
}

/// Moves time on minute by minute, with rest in between.
pub(super) async fn minutes(kit: &Kit, name: &str, count: usize) {
    for _ in 0..count {
        kit.advance(MINUTE);
        rest(kit, name).await;
        settled(kit, name).await;
    }
}

/// Waits until what the schedule started is parked or has ended, as it would have in a minute: the next occurrence must not
/// meet a run that is only slow.
async fn settled(kit: &Kit, name: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    let mut changes = kit.store.hub().changes();
    loop {
        changes.borrow_and_update();
        let runs = |run: &Instance| matches!(run.status, Status::Runnable | Status::Executing);
        let is_busy = all_runs(kit, name).await.iter().any(|run| runs(run) && !run.lane_blocked);
        if !is_busy || tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
            return;
        }
    }
}

pub(super) fn moment(text: &str) -> Timestamp {
    text.parse().expect("a moment")
}

pub(super) async fn create(client: &Client, schedule: Schedule) -> dormouse::InstanceId {
    client.schedules().create(schedule).await.expect("a new schedule")
}

async fn each_occurrence_starts_once_with_its_moment_in_its_key(kit: Kit) {
    let engine = engine(&kit).await;
    create(&engine.client(), minutely()).await;
    rest(&kit, "tick").await;
    assert!(runs(&kit, "tick").await.is_empty(), "nothing is due yet");
    minutes(&kit, "tick", 3).await;
    let keys = ["tick@2030-01-01T00:01:00Z", "tick@2030-01-01T00:02:00Z", "tick@2030-01-01T00:03:00Z"];
    assert_eq!(runs(&kit, "tick").await, keys);
    for run in all_runs(&kit, "tick").await {
        kit.until(run.id, Status::Done).await;
    }
    let view = rest(&kit, "tick").await;
    assert_eq!((view.started, view.missed), (3, 0));
    assert_eq!(view.last, Some(moment("2030-01-01T00:03:00Z")));
    assert_eq!(view.next, Some(moment("2030-01-01T00:04:00Z")));
    let again = kit.client().start_many([m().key(keys[0])]).await.expect("a start");
    assert!(matches!(again[0], dormouse::Inserted::Taken { .. }), "its key outlives its end");
    engine.shutdown().await;
}

async fn an_occurrence_is_filled_into_the_state(kit: Kit) {
    let engine = engine(&kit).await;
    let state = serde_json::json!({ "day": "{{scheduled_at}}", "of": "{{schedule}} {{number}}" });
    let schedule = Schedule::cron("tick", "* * * * *").start_named("m", at_with("start", state));
    create(&engine.client(), schedule).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 2).await;
    let last = all_runs(&kit, "tick").await.pop().expect("a run").id;
    let state: serde_json::Value = kit.history(last).await[0].state.decode("state").expect("JSON");
    assert_eq!(state, serde_json::json!({ "day": "2030-01-01T00:02:00Z", "of": "tick 1" }));
    engine.shutdown().await;
}

async fn what_it_starts_gets_its_queue_priority_lane_share_and_tags(kit: Kit) {
    let engine = kit.engine().queue("slow", 4).queue("default", 4);
    let engine = engine.dyn_machine(Script::named("m", |_, _| Ok(done()))).start().await.expect("it starts");
    let schedule =
        minutely().queue("slow").priority(7).lane("one").share("tenant-7").tag("nightly").key_prefix("mine");
    create(&engine.client(), schedule).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 1).await;
    let run = all_runs(&kit, "tick").await.pop().expect("a run");
    assert_eq!((&*run.queue, run.priority, run.lane.as_deref()), ("slow", 7, Some("one")));
    assert_eq!(run.share.as_deref(), Some("tenant-7"));
    assert_eq!((run.key.as_deref(), &*run.tags.join(",")), (Some("mine@2030-01-01T00:01:00Z"), "nightly"));
    assert_eq!(kit.get(rest(&kit, "tick").await.id).await.queue, "slow", "the schedule waits there too");
    engine.shutdown().await;
}

async fn a_schedule_starts_the_newest_version(kit: Kit) {
    let engine = engine(&kit).await;
    create(&engine.client(), minutely()).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 1).await;
    engine.shutdown().await;
    let newer = Script::version("m", 2, |_, _| Ok(done()));
    let engine = kit.engine().dyn_machine(newer).start().await.expect("it starts");
    minutes(&kit, "tick", 1).await;
    let versions: Vec<u32> = all_runs(&kit, "tick").await.into_iter().map(|run| run.version).collect();
    assert_eq!(versions, [1, 2]);
    engine.shutdown().await;
}

async fn failing_runs_never_end_it(kit: Kit) {
    let engine = kit.run(|_, _| Ok(fail("no"))).await;
    for (name, overlap) in [("skip", Overlap::Skip), ("wait", Overlap::Wait), ("allow", Overlap::Allow)] {
        let schedule = Schedule::cron(name, "* * * * *").start_named("m", at("start")).overlap(overlap);
        create(&engine.client(), schedule).await;
        rest(&kit, name).await;
    }
    for _ in 0..3 {
        kit.advance(MINUTE);
        for name in ["skip", "wait", "allow"] {
            rest(&kit, name).await;
            let run = loop {
                match all_runs(&kit, name).await.pop() {
                    Some(run) if run.key.as_deref() == Some(&format!("{name}@{}", kit.now())) => break run,
                    _ => tokio::task::yield_now().await,
                }
            };
            kit.until(run.id, Status::Failed).await;
        }
    }
    for name in ["skip", "wait", "allow"] {
        let view = rest(&kit, name).await;
        assert_eq!((view.status, view.started, view.missed), (Status::AwaitingSignal, 3, 0), "{name}");
    }
    engine.shutdown().await;
}

async fn several_engines_start_each_occurrence_once(kit: Kit) {
    let mut engines = Vec::new();
    for _ in 0..3 {
        engines.push(engine(&kit).await);
    }
    let names: Vec<String> = (0..8).map(|n| format!("s{n}")).collect();
    for name in &names {
        create(&engines[0].client(), Schedule { name: name.clone(), ..minutely() }).await;
    }
    for _ in 0..5 {
        kit.advance(MINUTE);
        for name in &names {
            rest(&kit, name).await;
        }
    }
    for name in &names {
        assert_eq!(runs(&kit, name).await.len(), 5, "{name}");
    }
    for engine in engines {
        engine.shutdown().await;
    }
}

async fn an_engine_that_dies_at_an_occurrence_loses_none_and_doubles_none(kit: Kit) {
    let first = engine(&kit).await;
    create(
        &first.client(),
        minutely().catch_up(CatchUp::Within(dormouse::jiff::SignedDuration::from_hours(1))),
    )
    .await;
    rest(&kit, "tick").await;
    drop(first);
    for round in 0..10 {
        // A restarted worker of the same name takes its claims back at once.
        let worker = kit.engine().worker_name("w").dyn_machine(Script::named("m", |_, _| Ok(done())));
        let engine = worker.start().await.expect("the engine starts");
        kit.advance(MINUTE);
        for _ in 0..round * 40 {
            tokio::task::yield_now().await;
        }
        drop(engine);
    }
    let engine = kit.engine().worker_name("w").dyn_machine(Script::named("m", |_, _| Ok(done())));
    let engine = engine.start().await.expect("the engine starts");
    // The claims of the one before are taken back at some moment after the start. A step that was lost several times in a row
    // is tried again a little later, by a clock that stands still unless it is advanced.
    let mut changes = kit.store.hub().changes();
    for _ in 0..50 {
        changes.borrow_and_update();
        let view =
            kit.client().schedules().get("tick").await.expect("a read").expect("the schedule is there");
        if view.status == Status::AwaitingSignal && view.next.is_none_or(|at| at > kit.now()) {
            break;
        }
        kit.advance(Duration::from_millis(500));
        let _ = tokio::time::timeout(Duration::from_millis(200), changes.changed()).await;
    }
    let expected: Vec<String> =
        (1..=10).map(|minute| format!("tick@2030-01-01T00:{minute:02}:00Z")).collect();
    let view = rest(&kit, "tick").await;
    // Those that meet a live one are skipped, and none is started twice.
    let mut keys = runs(&kit, "tick").await;
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len() as u64, view.started, "each was started once");
    assert_eq!(view.started + view.missed, 10, "each was looked at once: {view:?}");
    assert!(keys.iter().all(|key| expected.contains(key)), "{keys:?}");
    engine.shutdown().await;
}

async fn a_clock_that_jumps_back_starts_nothing_again(kit: Kit) {
    let engine = engine(&kit).await;
    create(&engine.client(), minutely()).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 2).await;
    kit.turn_back(MINUTE);
    // A command makes it look at the clock.
    kit.client().schedules().run("tick").await.expect("a run");
    let view = rest(&kit, "tick").await;
    assert_eq!(view.next, Some(moment("2030-01-01T00:03:00Z")));
    kit.advance(MINUTE);
    kit.advance(MINUTE);
    rest(&kit, "tick").await;
    let keys = runs(&kit, "tick").await;
    assert_eq!(keys.len(), 4, "three occurrences and the one that was asked for: {keys:?}");
    engine.shutdown().await;
}

async fn what_is_collected_is_not_started_again(kit: Kit) {
    let engine = engine(&kit).await;
    let client = engine.client();
    create(&client, minutely()).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 2).await;
    for run in all_runs(&kit, "tick").await {
        kit.until(run.id, Status::Done).await;
    }
    client.collect(Duration::ZERO).await.expect("a collection");
    assert!(
        runs(&kit, "tick").await.len() < 2,
        "what ended is gone, but for what its schedule may still read"
    );
    rest(&kit, "tick").await;
    let view = rest(&kit, "tick").await;
    assert_eq!((view.started, view.next), (2, Some(moment("2030-01-01T00:03:00Z"))));
    engine.shutdown().await;
}

async fn a_schedule_is_an_instance_like_any_other(kit: Kit) {
    let engine = engine(&kit).await;
    let client = engine.client();
    let id = create(&client, minutely()).await;
    rest(&kit, "tick").await;
    minutes(&kit, "tick", 1).await;
    let story = kit.story(id).await;
    assert_eq!(story[..2], [EventKind::Created, EventKind::SignalWaiting]);
    assert!(story.contains(&EventKind::ChildrenSpawned), "{story:?}");
    let told = client.explain("schedule:tick").await.expect("a sentence");
    assert!(told.contains("2030-01-01T00:02:00Z"), "{told}");
    let run = all_runs(&kit, "tick").await.pop().expect("a run");
    assert_eq!(run.parent, Some(id));
    engine.shutdown().await;
}

async fn a_skipped_and_a_doubled_hour_start_a_daily_one_once(kit: Kit) {
    let engine = engine(&kit).await;
    for (name, expression) in [("daily", "30 2 * * *"), ("hourly", "0 * * * *")] {
        let schedule = Schedule::cron(name, expression).zone("Europe/Berlin").start_named("m", at("start"));
        create(&engine.client(), schedule.overlap(Overlap::Allow)).await;
        rest(&kit, name).await;
    }
    for (day, hours) in [("2030-03-31", 23), ("2030-10-27", 25)] {
        // To the noon before, where everything that was due in between is missed.
        let noon = moment(&format!("{day}T12:00:00Z")) - Duration::from_secs(86_400);
        kit.advance(Duration::try_from(noon.duration_since(kit.now())).expect("it is ahead"));
        let mut before = [0, 0];
        for (index, name) in ["daily", "hourly"].iter().enumerate() {
            before[index] = rest(&kit, name).await.started;
        }
        // From noon to noon on the wall clock.
        for _ in 0..hours * 2 {
            kit.advance(HOUR / 2);
            rest(&kit, "daily").await;
            rest(&kit, "hourly").await;
        }
        assert_eq!(rest(&kit, "daily").await.started - before[0], 1, "{day}");
        assert_eq!(rest(&kit, "hourly").await.started - before[1], hours, "{day}");
    }
    engine.shutdown().await;
}

async fn leap_days_and_a_zone_that_moves_are_followed(kit: Kit) {
    let engine = engine(&kit).await;
    // Morocco moves its clocks around Ramadan, by no rule of a calendar, or not at all: as the database of zones says.
    let moves = |zone: &'static str| {
        let zoned = TimeZone::get(zone).expect("a zone");
        let moved = zoned.following(kit.now()).next().map(|moved| moved.timestamp());
        moved.map(|moved| (zone, moved.to_zoned(zoned).date()))
    };
    let (zone, day) =
        moves("Africa/Casablanca").or_else(|| moves("Europe/Berlin")).expect("a zone that moves");
    let days = [day.yesterday().expect("a day"), day, day.tomorrow().expect("a day")];
    let noons = days.map(|day| day.at(12, 0, 0, 0).in_tz(zone).expect("a noon").timestamp());
    let noon = Schedule::cron("noon", "0 12 * * *").zone(zone).start_named("m", at("start"));
    create(&engine.client(), noon.from(noons[0] - HOUR).until(noons[2] + HOUR)).await;
    let leap = Schedule::cron("leap", "0 0 29 2 *").start_named("m", at("start"));
    create(&engine.client(), leap).await;
    let to = async |at: Timestamp| {
        kit.advance(Duration::try_from(at.duration_since(kit.now())).expect("it is ahead"));
        for name in ["noon", "leap"] {
            rest(&kit, name).await;
            settled(&kit, name).await;
        }
    };
    for at in noons {
        to(at).await;
        assert_eq!(runs(&kit, "noon").await.last(), Some(&format!("noon@{at}")), "{zone}");
    }
    assert_eq!(runs(&kit, "noon").await.len(), 3);
    let between = noons.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_hours());
    assert_ne!(between.collect::<Vec<_>>(), [24, 24], "{zone} moved");
    to(moment("2031-03-01T00:00:00Z")).await;
    assert!(runs(&kit, "leap").await.is_empty(), "neither 2030 nor 2031 has such a day");
    to(moment("2032-02-29T00:00:00Z")).await;
    assert_eq!(runs(&kit, "leap").await, ["leap@2032-02-29T00:00:00Z"]);
    assert_eq!(rest(&kit, "leap").await.next, Some(moment("2036-02-29T00:00:00Z")));
    engine.shutdown().await;
}

/// The clock stands still while it is not moved: whatever looks later, or at an interval, would start it at another moment.
async fn an_occurrence_starts_at_its_moment(kit: Kit) {
    let engine = engine(&kit).await;
    let secondly = Schedule::every("tick", Duration::from_secs(1)).start_named("m", at("start"));
    create(&engine.client(), secondly.overlap(Overlap::Allow)).await;
    rest(&kit, "tick").await;
    for _ in 0..3 {
        kit.advance(Duration::from_millis(999));
        rest(&kit, "tick").await;
        let before = runs(&kit, "tick").await.len();
        kit.advance(Duration::from_millis(1));
        rest(&kit, "tick").await;
        let started = all_runs(&kit, "tick").await;
        assert_eq!(started.len(), before + 1);
        assert_eq!(started.last().map(|run| run.created_at), Some(kit.now()));
    }
    engine.shutdown().await;
}

async fn it_is_served_where_its_runs_are(kit: Kit) {
    let builder = kit.engine().namespaces(Namespaces::Only(vec!["shop".to_owned()]));
    let engine = builder.dyn_machine(Script::named("m", |_, _| Ok(done()))).start().await.expect("it starts");
    let client = engine.client().in_namespace("shop").expect("a namespace");
    let id = create(&client, minutely()).await;
    kit.until(id, Status::AwaitingSignal).await;
    kit.advance(MINUTE);
    let view = loop {
        let view = client.schedules().get("tick").await.expect("a read").expect("a schedule");
        if view.started == 1 && view.status == Status::AwaitingSignal {
            break view;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(view.next, Some(moment("2030-01-01T00:02:00Z")));
    let runs = client.schedules().runs("tick", 10).await.expect("a read");
    assert_eq!((runs.len(), &*runs[0].namespace), (1, "shop"));
    assert!(kit.client().schedules().get("tick").await.expect("a read").is_none(), "another namespace");
    engine.shutdown().await;
}

/// Lets a run end that waits for `go`.
pub(super) async fn let_go(kit: &Kit, key: &str) {
    let client = kit.client();
    client.signal_raw(key, signal("go")).await.expect("a signal");
    client.wait_end(key, SOON).await.expect("it ends");
}
