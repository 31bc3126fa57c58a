//! The built-in machine of schedules, which every engine runs.
//!
//! A schedule waits for its next occurrence on the one clock, and for commands as signals. It starts its runs by a spawn,
//! so that they are inserted in the same commit in which the schedule moves on: each occurrence starts exactly once,
//! whatever crashes. It does not wait for them: the barrier's deadline is at once.

use std::sync::Arc;
use std::time::Duration;

use crate::graph::Graph;
use crate::machine::Typed;
use crate::schedule::{COMMAND, Calendar, Command, Memory, Plan, Run, ScheduleState, plan};
use crate::{
    Accepts, At, BoxError, Children, Client, Context, DynMachine, EngineBuilder, Error, History, Machine,
    NewInstance, Occurrence, Outcome, Registry, Result, Retry, Round, Running, SCHEDULE_MACHINE, Schedule,
    Stated, StepError, StepResult,
};

/// Code that makes the state of a run.
pub(super) type Function = Arc<dyn Fn(&Occurrence) -> Result<At> + Send + Sync>;

impl EngineBuilder {
    /// Declares a schedule. When the engine starts, the schedule is created, or brought in step with what is declared
    /// here; what somebody changed at run time stays as it is. To remove it, take it out of the code and delete it.
    ///
    /// ```
    /// # use dormouse::{Schedule, prelude::*, testing::TestEngine};
    /// # struct Report;
    /// # impl Job for Report {
    /// #     const NAME: &'static str = "report";
    /// #     type Input = String;
    /// #     type Output = ();
    /// #     async fn run(&self, _: String, _: &Context) -> Result<(), BoxError> { Ok(()) }
    /// # }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> dormouse::Result<()> {
    /// let test = TestEngine::start(|engine| {
    ///     let nightly = Schedule::cron("nightly", "0 3 * * *").start_job::<Report>("sales".to_owned());
    ///     engine.job(Report).schedule(nightly)
    /// })
    /// .await?;
    /// test.advance(std::time::Duration::from_secs(86_400)).await?;
    /// assert_eq!(test.client().schedules().runs("nightly", 10).await?.len(), 1);
    /// # Ok(()) }
    /// ```
    pub fn schedule(self, schedule: Schedule) -> Self {
        match schedule.starts.at {
            Some(_) => self.declaring(schedule),
            None => {
                let reason = "it has no state to start with: use `start`, `start_job`, or `schedule_with`";
                self.mistaken(Error::InvalidSchedule { schedule: schedule.name, reason: reason.to_owned() })
            }
        }
    }

    /// Declares a schedule whose occurrences start a machine in a state that a function makes. Only engines that
    /// declare it run it: it is an instance of a machine of its own.
    pub fn schedule_with<M: Machine>(
        self,
        schedule: Schedule,
        state: impl Fn(&Occurrence) -> M::State + Send + Sync + 'static,
    ) -> Self {
        let mut schedule = schedule.starting::<M>();
        schedule.starts.at = None;
        let function: Function = Arc::new(move |occurrence| At::of::<M>(&state(occurrence)));
        let named = machine(schedule.own_machine(), self.client(), Some(function));
        let declared = self.declaring(schedule);
        match named {
            Ok(machine) => declared.dyn_machine(machine),
            Err(error) => declared.mistaken(error),
        }
    }

    fn declaring(mut self, schedule: Schedule) -> Self {
        let is_same = |other: &Schedule| other.name == schedule.name && other.namespace == schedule.namespace;
        if self.schedules.iter().any(is_same) {
            let reason = "it is declared twice; give each its own name".to_owned();
            return self.mistaken(Error::InvalidSchedule { schedule: schedule.name, reason });
        }
        if let Err(error) = schedule.check() {
            return self.mistaken(error);
        }
        self.schedules.push(schedule);
        self
    }
}

/// Adds the machine that every schedule is an instance of, unless code makes its states.
pub(super) fn register(registry: &mut Registry, client: Client) -> Result<()> {
    registry.add(machine(SCHEDULE_MACHINE.to_owned(), client, None)?)
}

fn machine(name: String, client: Client, function: Option<Function>) -> Result<Arc<dyn DynMachine>> {
    let typed = Typed::new(Scheduler { client, function })?;
    Ok(Arc::new(Named { name, typed }))
}

/// The machine of schedules. It starts others through a client of its engine.
struct Scheduler {
    client: Client,
    /// Makes the states of what it starts.
    function: Option<Function>,
}

/// What a schedule is done with.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Totals {
    started: u64,
    missed: u64,
}

impl Machine for Scheduler {
    const NAME: &'static str = SCHEDULE_MACHINE;
    type State = ScheduleState;
    type Output = Option<Totals>;

    async fn step(&self, state: ScheduleState, cx: &Context) -> StepResult<Self> {
        match state {
            ScheduleState::Watch(memory) => self.watch(memory, cx).await,
            ScheduleState::Started(mut memory) => {
                memory.note_started(cx);
                self.watch(memory, cx).await
            }
            ScheduleState::Run { schedule, run } => {
                Ok(Outcome::spawn([*run], ScheduleState::Ended { schedule }))
            }
            ScheduleState::Ended { schedule } => {
                let client = self.client.in_namespace(cx.namespace())?;
                match client.signal(schedule, COMMAND, Command::Ended { watcher: cx.id() }).await {
                    // A schedule that was deleted has nothing in line.
                    Ok(_) | Err(Error::NoTarget(_)) => Ok(Outcome::done(None)),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// A schedule never gives up: it tries again, less and less often, and says why.
    async fn handle(&self, error: StepError, state: ScheduleState, cx: &Context) -> StepResult<Self> {
        let retry = Retry::times(u32::MAX).backoff(Duration::from_secs(1), Duration::from_secs(60));
        let delay = retry.delay(cx.attempt()).unwrap_or(Duration::from_secs(60));
        Ok(Outcome::replay_because(error, state, delay))
    }

    fn accepts() -> Vec<Accepts> {
        vec![COMMAND.into()]
    }
}

impl Scheduler {
    /// Takes commands, starts what is due, and waits for the next occurrence.
    async fn watch(&self, mut memory: Box<Memory>, cx: &Context) -> StepResult<Self> {
        let commands = cx.received(COMMAND)?;
        let has_commands = !commands.is_empty();
        for command in commands {
            let calendar = memory.schedule.calendar()?;
            memory.apply(command, &calendar, cx.now());
        }
        let client = self.client.in_namespace(cx.namespace())?;
        memory.forget_ended(&client).await?;
        let calendar: Calendar = memory.schedule.calendar()?;
        let Plan { starts, is_watched, cancels, wake_at, is_done } = plan(&mut memory, &calendar, cx.now());
        if cancels {
            for Run { key, .. } in &memory.running {
                let cancel =
                    client.cancel(&**key).reason("a later occurrence of its schedule takes its place");
                match cancel.await {
                    Ok(_) | Err(Error::NotFound(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if !starts.is_empty() {
            let mut runs = Vec::with_capacity(starts.len());
            for occurrence in &starts {
                runs.push(self.run(&memory.schedule, occurrence, &client).await?);
            }
            memory.starting = runs.iter().filter_map(|run| run.key.clone()).collect();
            if is_watched {
                runs = runs.into_iter().map(|run| watched(run, cx)).collect();
            }
            let round = Round::of(runs).timeout(Duration::ZERO).on_cancel(Children::Keep);
            return Ok(Outcome::spawn(round, ScheduleState::Started(memory)));
        }
        if is_done {
            return Ok(Outcome::done(Some(Totals { started: memory.started, missed: memory.missed })));
        }
        if has_commands {
            // Only progress consumes them.
            return Ok(Outcome::next(ScheduleState::Watch(memory)));
        }
        Ok(match wake_at {
            Some(at) => Outcome::await_signal(COMMAND.timeout(at), ScheduleState::Watch(memory)),
            None => Outcome::await_signal(COMMAND, ScheduleState::Watch(memory)),
        })
    }

    /// The instance that an occurrence starts.
    async fn run(
        &self,
        schedule: &Schedule,
        occurrence: &Occurrence,
        client: &Client,
    ) -> Result<NewInstance, BoxError> {
        let at = match (schedule.place(occurrence), &self.function) {
            (Some(at), _) => at,
            (None, Some(function)) => function(occurrence)?,
            (None, None) => return Err("its state is made by code that this worker does not have".into()),
        };
        let version = match schedule.starts.version {
            Some(version) => version,
            None => client.newest_version(&schedule.starts.machine).await?,
        };
        Ok(schedule.run(occurrence, at, version))
    }
}

/// An instance that starts a run and reports its end to the schedule.
fn watched(run: NewInstance, cx: &Context) -> NewInstance {
    let queue = run.queue.clone();
    NewInstance::of::<Scheduler>(ScheduleState::Run { schedule: cx.id(), run: Box::new(run) }).queue(queue)
}

impl Memory {
    /// Notes the runs that the schedule was parked on. One whose key was taken is not among them: it had been started
    /// before.
    fn note_started(&mut self, cx: &Context) {
        let keys = std::mem::take(&mut self.starting);
        if self.schedule.overlap == crate::Overlap::Allow {
            return;
        }
        for child in cx.children().iter().filter(|child| !child.status.is_terminal()) {
            if let Some(key) = keys.get(child.index as usize) {
                self.running.push(Run { id: child.id, key: key.clone() });
            }
        }
    }

    /// Forgets the runs that have ended.
    async fn forget_ended(&mut self, client: &Client) -> Result<()> {
        let mut live = Vec::with_capacity(self.running.len());
        for run in self.running.drain(..) {
            if client.head(run.id).await?.is_some_and(|head| !head.status.is_terminal()) {
                live.push(run);
            }
        }
        self.running = live;
        Ok(())
    }
}

/// A machine of schedules under a name of its own.
struct Named {
    name: String,
    typed: Typed<Scheduler>,
}

impl DynMachine for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u32 {
        self.typed.version()
    }

    fn steps(&self) -> Vec<String> {
        self.typed.steps()
    }

    fn history(&self) -> Option<History> {
        self.typed.history()
    }

    fn accepts(&self) -> Vec<Accepts> {
        self.typed.accepts()
    }

    fn states(&self) -> Vec<Stated> {
        self.typed.states()
    }

    fn graph(&self) -> Option<Graph> {
        self.typed.graph()
    }

    fn migrate(&self, from_version: u32, at: At) -> Result<At, BoxError> {
        self.typed.migrate(from_version, at)
    }

    fn check(&self, at: &At) -> Result<(), String> {
        self.typed.check(at)
    }

    fn step<'a>(&'a self, at: &'a At, cx: &'a Context) -> Running<'a> {
        self.typed.step(at, cx)
    }

    fn handle<'a>(&'a self, error: StepError, at: &'a At, cx: &'a Context) -> Running<'a> {
        self.typed.handle(error, at, cx)
    }
}
