//! Schedules: create, look, run now, backfill, change, pause, delete.

use jiff::Timestamp;

use super::Client;
use crate::schedule::{COMMAND, Command, KEY_PREFIX, Memory, ScheduleState, check_schedule_name};
use crate::store::Filter;
use crate::{
    Error, Inserted, Instance, InstanceId, Missed, NewInstance, Occurrence, Result, SCHEDULE_MACHINE,
    Schedule, Status, Target,
};

/// Schedules come before what they start.
const PRIORITY: i32 = -1_000_000;

/// The most moments that are listed at once.
const NEXT_MAX: usize = 1_000;

/// The schedules of a client's namespace: see [`Client::schedules`].
#[derive(Clone, Debug)]
pub struct Schedules<'a> {
    client: &'a Client,
}

/// A schedule as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleView {
    /// The instance that it is.
    pub id: InstanceId,
    /// The schedule in force.
    pub schedule: Schedule,
    /// The schedule as code declared it last. If it differs from the one in force, somebody changed it at run time.
    pub declared: Option<Schedule>,
    /// The status of its instance.
    pub status: Status,
    /// Whether it is paused.
    pub paused: bool,
    /// When its next occurrence starts: its moment, and its share of the jitter.
    pub next: Option<Timestamp>,
    /// How many runs it has started.
    pub started: u64,
    /// How many its calendar may still start; `None` if there is no such limit.
    pub left: Option<u64>,
    /// The occurrence that was started last.
    pub last: Option<Timestamp>,
    /// How many occurrences were not started.
    pub missed: u64,
    /// The last of those, oldest first.
    pub recently_missed: Vec<Missed>,
    /// Live runs that its overlap policy watches.
    pub running: usize,
    /// Whether occurrences wait for a run to end.
    pub is_waiting: bool,
    /// Why its last command was refused, or why its step failed last and is tried again.
    pub error: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
}

impl ScheduleView {
    /// Whether somebody changed at run time what code declares.
    pub fn is_changed(&self) -> bool {
        self.declared.as_ref().is_some_and(|declared| *declared != self.schedule)
    }

    fn of(instance: Instance) -> Option<Self> {
        if !is_schedule(&instance) {
            return None;
        }
        let memory = memory(&instance).ok()?;
        let Instance { id, status, paused, created_at, last_error, .. } = instance;
        let left = memory.schedule.runs_max.map(|runs_max| runs_max.saturating_sub(memory.counted));
        let is_over = status.is_terminal() || left == Some(0);
        let next = if is_over {
            None
        } else {
            memory.schedule.calendar().ok().and_then(|calendar| calendar.next(memory.cursor))
        };
        Some(Self {
            id,
            status,
            paused,
            next: next.map(|at| memory.schedule.due_at(at)),
            started: memory.started,
            left,
            last: memory.last,
            missed: memory.missed,
            running: memory.running.len(),
            is_waiting: !memory.todo.is_empty(),
            error: memory.refused.or(last_error),
            recently_missed: memory.recently_missed,
            declared: memory.declared,
            schedule: memory.schedule,
            created_at,
        })
    }
}

impl Client {
    /// The schedules of this client's namespace.
    ///
    /// ```no_run
    /// # async fn shop(client: dormouse::Client, nightly: dormouse::Schedule) -> dormouse::Result<()> {
    /// client.schedules().create(nightly).await?;
    /// client.schedules().run("nightly-report").await?;
    /// # Ok(()) }
    /// ```
    pub fn schedules(&self) -> Schedules<'_> {
        Schedules { client: self }
    }

    /// The newest version of a machine that is registered here or declared elsewhere; 1 if there is none.
    pub(crate) async fn newest_version(&self, machine: &str) -> Result<u32> {
        let declared = self.declarations().await?;
        Ok(declared.iter().find(|declared| declared.name == machine).map_or(1, |declared| declared.version))
    }
}

impl Schedules<'_> {
    /// Creates a schedule and returns the id of its instance. It happens from now on.
    ///
    /// Fails with [`Error::KeyTaken`] if there is one of this name, with [`Error::InvalidSchedule`] if it could not
    /// happen, and with [`Error::UnknownMachine`] or [`Error::InvalidState`] if what it starts could not run.
    pub async fn create(&self, schedule: Schedule) -> Result<InstanceId> {
        let schedule = self.admitted(schedule).await?;
        let (key, new) = (Schedule::key_of(&schedule.name), self.instance(schedule, None).await?);
        super::start::one(self.insert(new).await?, Some(key))
    }

    /// A schedule by its name, live or ended; `None` if there is none.
    pub async fn get(&self, name: &str) -> Result<Option<ScheduleView>> {
        check_schedule_name("schedule name", name)?;
        let found = self.client.get(Target::Key(Schedule::key_of(name))).await?;
        Ok(found.and_then(ScheduleView::of))
    }

    /// Live schedules, newest first: up to about `limit`, after the one that a call before returned. The second value
    /// continues the list.
    pub async fn list(
        &self,
        after: Option<InstanceId>,
        limit: usize,
    ) -> Result<(Vec<ScheduleView>, Option<InstanceId>)> {
        let filter = Filter { key_prefix: Some(KEY_PREFIX.to_owned()), after, limit, ..Filter::default() };
        let page = self.client.list(filter).await?;
        let live = page.instances.into_iter().filter(|instance| !instance.status.is_terminal());
        Ok((live.filter_map(ScheduleView::of).collect(), page.next))
    }

    /// The next moments of a schedule, without jitter, at most 1,000.
    pub async fn next(&self, name: &str, count: usize) -> Result<Vec<Timestamp>> {
        let now = self.client.store.about().await?.now;
        let view = self.get(name).await?.ok_or_else(|| Error::NoSchedule(name.to_owned()))?;
        if view.status.is_terminal() {
            return Ok(Vec::new());
        }
        let left = view.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        view.schedule.next(now, count.min(NEXT_MAX).min(left))
    }

    /// The runs of a schedule, newest first, without their documents.
    pub async fn runs(&self, name: &str, limit: usize) -> Result<Vec<Instance>> {
        let view = self.get(name).await?.ok_or_else(|| Error::NoSchedule(name.to_owned()))?;
        let filter = Filter {
            key_prefix: Some(view.schedule.run_prefix()),
            machine: Some(view.schedule.starts.machine),
            limit,
            heads_only: true,
            ..Filter::default()
        };
        Ok(self.client.list(filter).await?.instances)
    }

    /// Starts one run now, whatever else runs. If the schedule is paused, it starts when it is resumed.
    pub async fn run(&self, name: &str) -> Result<()> {
        self.command(name, Command::Run).await
    }

    /// Starts every occurrence from one moment up to and with another, and returns how many there are. An occurrence
    /// that was started before, and whose run is still stored, is not started again. They follow the overlap policy;
    /// where that skips, they run one after the other.
    ///
    /// Fails with [`Error::InvalidSchedule`] if there are more than [`OCCURRENCES_MAX`](crate::OCCURRENCES_MAX).
    pub async fn backfill(&self, name: &str, from: Timestamp, to: Timestamp) -> Result<u64> {
        let view = self.live(name).await?;
        let refused = |reason: String| Error::InvalidSchedule { schedule: name.to_owned(), reason };
        if to < from {
            return Err(refused(format!("its backfill ends at {to}, before it begins at {from}")));
        }
        if to > self.client.store.about().await?.now {
            return Err(refused(format!("its backfill ends at {to}, which is not past")));
        }
        let after = from.checked_sub(jiff::SignedDuration::from_micros(1)).unwrap_or(from);
        let calendar = view.schedule.calendar()?;
        let count = view.schedule.check_count(&calendar, "backfill", after, to)?;
        if count > 0 {
            self.command(name, Command::Backfill { after, to }).await?;
        }
        Ok(count)
    }

    /// Replaces a schedule by another of the same name. It happens by the new one from now on; what it remembers stays.
    pub async fn change(&self, schedule: Schedule) -> Result<()> {
        let before = self.live(&schedule.name).await?;
        let made_by_code = before.declared.is_some_and(|declared| declared.starts.at.is_none());
        let schedule = match schedule.starts.at {
            None if made_by_code => schedule,
            _ => self.admitted(schedule).await?,
        };
        schedule.check()?;
        let name = schedule.name.clone();
        self.command(&name, Command::Change(Box::new(schedule))).await
    }

    /// Makes a schedule that was changed at run time again what code declares.
    pub async fn reset(&self, name: &str) -> Result<()> {
        let refused = || Error::InvalidSchedule {
            schedule: name.to_owned(),
            reason: "no code declares it, so there is nothing to reset it to".to_owned(),
        };
        let declared = self.live(name).await?.declared.ok_or_else(refused)?;
        self.command(name, Command::Change(Box::new(declared))).await
    }

    /// Pauses a schedule: nothing starts until it is resumed. Then its catch-up policy decides about what was due.
    pub async fn pause(&self, name: &str) -> Result<()> {
        let id = self.live(name).await?.id;
        self.client.pause(id).await.map(drop)
    }

    /// Resumes a schedule after a pause.
    pub async fn resume(&self, name: &str) -> Result<()> {
        let id = self.live(name).await?.id;
        self.client.resume(id).await.map(drop)
    }

    /// Deletes a schedule. Its runs go on, and its instance is kept as `cancelled`, as long as others.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let id = self.live(name).await?.id;
        self.client.cancel(id).reason("the schedule was deleted").await.map(drop)
    }

    /// Creates a schedule that code declares, or tells it what is declared now. One that has ended stays ended until its
    /// declaration changes.
    pub(crate) async fn declare(&self, mut schedule: Schedule) -> Result<()> {
        schedule.namespace = None;
        schedule.starts.queue.get_or_insert_with(|| "default".to_owned());
        let key = Schedule::key_of(&schedule.name);
        for _ in 0..DECLARE_TRIES {
            let found = self.client.get(Target::Key(key.clone())).await?;
            let Some(before) = found.as_ref().filter(|found| is_schedule(found)) else {
                let new = self.instance(schedule.clone(), Some(schedule.clone())).await?;
                match self.insert(new).await?.pop() {
                    Some(Inserted::Taken { holder, .. }) if found.is_none() => {
                        // Another engine was faster; or another instance holds the key.
                        tracing::debug!(%holder, schedule = schedule.name, "the schedule is there already");
                        continue;
                    }
                    Some(Inserted::Taken { holder, .. }) => return Err(Error::KeyTaken { key, holder }),
                    Some(Inserted::New(_)) | None => return Ok(()),
                }
            };
            if memory(before)?.declared.as_ref() == Some(&schedule) {
                return Ok(());
            }
            if before.status.is_terminal() {
                let new = self.instance(schedule.clone(), Some(schedule.clone())).await?;
                return self.insert(new).await.map(drop);
            }
            match self.command(&schedule.name, Command::Declare(Box::new(schedule.clone()))).await {
                Err(Error::NoSchedule(_)) => {}
                told => return told,
            }
        }
        Err(Error::Busy("the schedule was created and ended again while it was declared".into()))
    }

    /// A live schedule.
    async fn live(&self, name: &str) -> Result<ScheduleView> {
        let found = self.get(name).await?.filter(|view| !view.status.is_terminal());
        found.ok_or_else(|| Error::NoSchedule(name.to_owned()))
    }

    async fn command(&self, name: &str, command: Command) -> Result<()> {
        let id = self.live(name).await?.id;
        match self.client.signal(id, COMMAND, command).await {
            Err(Error::NoTarget(_)) => Err(Error::NoSchedule(name.to_owned())),
            delivered => delivered.map(drop),
        }
    }

    /// Refuses a schedule that could not happen, or whose runs could not start; and settles its queue.
    async fn admitted(&self, mut schedule: Schedule) -> Result<Schedule> {
        schedule.namespace = None;
        let calendar = schedule.check()?;
        let refused = |reason: &str| Error::InvalidSchedule {
            schedule: schedule.name.clone(),
            reason: reason.to_owned(),
        };
        let now = self.client.store.about().await?.now;
        let Some(scheduled_at) = calendar.next(now) else {
            return Err(refused("none of its occurrences is in the future"));
        };
        let occurrence =
            Occurrence { schedule: schedule.name.clone(), scheduled_at, number: 0, is_manual: false };
        let Some(at) = schedule.place(&occurrence) else {
            return Err(refused("it has no state to start with: name a step and its state"));
        };
        let version = match schedule.starts.version {
            Some(version) => version,
            None => self.client.newest_version(&schedule.starts.machine).await?,
        };
        let even_if_unknown = schedule.starts.even_if_unknown;
        let run = NewInstance { even_if_unknown, ..schedule.run(&occurrence, at, version) };
        self.client.check(&run).await?;
        self.client.check_known(std::slice::from_ref(&run)).await?;
        if schedule.starts.queue.is_none() {
            let declared = self.client.declaration(&schedule.starts.machine, version).await?;
            schedule.starts.queue =
                Some(declared.map_or_else(|| run.queue.clone(), |declared| declared.queue.clone()));
        }
        Ok(schedule)
    }

    /// The instance that a schedule is.
    async fn instance(&self, schedule: Schedule, declared: Option<Schedule>) -> Result<NewInstance> {
        let now = self.client.store.about().await?.now;
        let (machine, key) = (schedule.own_machine(), Schedule::key_of(&schedule.name));
        let queue = schedule.starts.queue.clone().unwrap_or_else(|| "default".to_owned());
        let state = ScheduleState::Watch(Box::new(Memory::new(schedule, declared, now)));
        let at = crate::machine::encode_at(&state)?;
        let new = NewInstance { is_typed: true, ..NewInstance::named(machine, 1, at) };
        Ok(new.key(key).queue(queue).priority(PRIORITY).even_if_unknown())
    }

    async fn insert(&self, new: NewInstance) -> Result<Vec<Inserted>> {
        self.client.start_many([new]).await
    }
}

/// How often a declaration is tried while the schedule comes and goes.
const DECLARE_TRIES: usize = 5;

fn is_schedule(instance: &Instance) -> bool {
    let rest = instance.machine.strip_prefix(SCHEDULE_MACHINE);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

fn memory(instance: &Instance) -> Result<Memory> {
    let at = crate::At { step: instance.step.clone().into(), state: instance.state.clone() };
    match crate::machine::decode_at::<ScheduleState>(&at) {
        Ok(ScheduleState::Watch(memory) | ScheduleState::Started(memory)) => Ok(*memory),
        Ok(_) => Err(Error::StrangeValue(format!("instance {} is not a schedule", instance.id))),
        Err(reason) => Err(Error::Decode { what: "schedule's state", reason }),
    }
}
