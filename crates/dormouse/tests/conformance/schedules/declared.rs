//! Schedules that code declares.

use std::sync::Arc;

use dormouse::prelude::*;
use dormouse::{Engine, EngineBuilder, Error, Schedule, Status};

use super::{MINUTE, minutely, minutes, moment, rest, runs};
use crate::kit::*;

suite![
    a_declared_schedule_is_created_once,
    what_code_changes_is_followed_and_what_people_changed_is_kept,
    a_deleted_schedule_stays_deleted_until_its_declaration_changes,
    a_function_makes_the_state_of_each_occurrence,
    only_an_engine_with_the_function_runs_its_schedule,
    a_schedule_that_cannot_be_is_refused_at_the_start,
];

fn builder(kit: &Kit) -> EngineBuilder {
    kit.engine().dyn_machine(Script::named("m", |_, _| Ok(done())))
}

async fn started(kit: &Kit, schedule: Schedule) -> Engine {
    builder(kit).schedule(schedule).start().await.expect("the engine starts")
}

async fn a_declared_schedule_is_created_once(kit: Kit) {
    let first = started(&kit, minutely()).await;
    let id = rest(&kit, "tick").await.id;
    let second = started(&kit, minutely()).await;
    minutes(&kit, "tick", 2).await;
    let view = rest(&kit, "tick").await;
    assert_eq!((view.id, view.started, view.is_changed()), (id, 2, false));
    first.shutdown().await;
    second.shutdown().await;
}

async fn what_code_changes_is_followed_and_what_people_changed_is_kept(kit: Kit) {
    let hourly = || Schedule::cron("tick", "0 * * * *").start_named("m", at("start")).queue("default");
    let daily = || Schedule::cron("tick", "0 0 * * *").start_named("m", at("start")).queue("default");
    started(&kit, minutely()).await.shutdown().await;
    let engine = started(&kit, hourly()).await;
    let view = rest(&kit, "tick").await;
    assert_eq!((view.schedule.when, view.next), (hourly().when, Some(moment("2030-01-01T01:00:00Z"))));
    engine.client().schedules().change(daily()).await.expect("a change");
    assert!(rest(&kit, "tick").await.is_changed());
    engine.shutdown().await;
    let engine = started(&kit, hourly()).await;
    assert_eq!(rest(&kit, "tick").await.schedule, daily(), "what somebody changed stays");
    engine.shutdown().await;
    let engine = started(&kit, minutely()).await;
    let view = rest(&kit, "tick").await;
    assert_eq!(view.schedule, daily(), "also where the code changes");
    assert_eq!(view.declared.map(|declared| declared.when), Some(minutely().when), "and both are shown");
    engine.client().schedules().reset("tick").await.expect("a reset");
    let view = rest(&kit, "tick").await;
    assert_eq!((view.schedule.when.clone(), view.is_changed()), (minutely().when, false));
    engine.shutdown().await;
}

async fn a_deleted_schedule_stays_deleted_until_its_declaration_changes(kit: Kit) {
    let engine = started(&kit, minutely()).await;
    rest(&kit, "tick").await;
    engine.client().schedules().delete("tick").await.expect("a delete");
    engine.shutdown().await;
    let engine = started(&kit, minutely()).await;
    assert_eq!(rest(&kit, "tick").await.status, Status::Cancelled);
    engine.shutdown().await;
    let engine = started(&kit, minutely().priority(1)).await;
    assert_eq!(rest(&kit, "tick").await.status, Status::AwaitingSignal);
    engine.shutdown().await;
}

struct Report;

#[derive(Serialize, Deserialize)]
enum Reporting {
    Of { day: String },
}

impl Machine for Report {
    const NAME: &'static str = "report";
    type State = Reporting;
    type Output = String;

    async fn step(&self, state: Reporting, _cx: &Context) -> StepResult<Self> {
        let Reporting::Of { day } = state;
        Ok(Outcome::done(day))
    }
}

fn of_the_day(engine: EngineBuilder) -> EngineBuilder {
    let daily = Schedule::cron("daily", "* * * * *");
    engine.machine(Report).schedule_with::<Report>(daily, |occurrence| Reporting::Of {
        day: format!("{} {}", occurrence.number, occurrence.scheduled_at.strftime("%F %R")),
    })
}

async fn a_function_makes_the_state_of_each_occurrence(kit: Kit) {
    let engine = of_the_day(kit.engine()).start().await.expect("the engine starts");
    rest(&kit, "daily").await;
    minutes(&kit, "daily", 2).await;
    let output = engine.client().wait::<Report>("daily@2030-01-01T00:02:00Z", SOON).await.expect("an output");
    assert_eq!(output, "1 2030-01-01 00:02");
    engine.shutdown().await;
}

async fn only_an_engine_with_the_function_runs_its_schedule(kit: Kit) {
    let engine = of_the_day(kit.engine()).start().await.expect("the engine starts");
    let id = rest(&kit, "daily").await.id;
    engine.shutdown().await;
    let without = kit.engine().machine(Report).start().await.expect("the engine starts");
    kit.advance(MINUTE);
    kit.until(id, Status::Runnable).await;
    let told = without.client().explain(id).await.expect("a sentence");
    assert!(told.contains("dormouse.schedule:daily"), "{told}");
    let engine = of_the_day(kit.engine()).start().await.expect("the engine starts");
    rest(&kit, "daily").await;
    assert_eq!(runs(&kit, "daily").await.len(), 1);
    without.shutdown().await;
    engine.shutdown().await;
}

async fn a_schedule_that_cannot_be_is_refused_at_the_start(kit: Kit) {
    let twice = builder(&kit).schedule(minutely()).schedule(minutely()).start().await;
    assert!(matches!(twice, Err(Error::InvalidSchedule { .. })));
    let stateless = builder(&kit).schedule(Schedule::cron("tick", "* * * * *")).start().await;
    assert!(matches!(stateless, Err(Error::InvalidSchedule { .. })));
    let bad = builder(&kit).schedule(minutely().zone("Nowhere")).start().await;
    assert!(matches!(bad, Err(Error::InvalidSchedule { .. })));
    let other: Arc<dyn dormouse::DynMachine> = Script::named("dormouse.schedule", |_, _| Ok(done()));
    assert!(matches!(builder(&kit).dyn_machine(other).start().await, Err(Error::InvalidMachine { .. })));
    assert!(kit.list(dormouse::store::Filter::default()).await.is_empty(), "nothing was stored");
}
