//! Schedules: when something starts again and again, what it starts, and its policies.
//!
//! A schedule is an instance of a built-in machine. This module has what it is made of, without a store: the
//! [`Schedule`] itself, its calendar (`calendar.rs`), what it remembers (`state.rs`), and what it does at a moment
//! (`plan.rs`).

mod calendar;
mod plan;
mod policy;
mod state;
mod template;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub(crate) use self::calendar::Calendar;
pub(crate) use self::plan::{Plan, plan};
pub use self::policy::{CatchUp, Overlap};
pub(crate) use self::state::{COMMAND, Command, Memory, Run, ScheduleState};
pub use self::state::{Missed, MissedWhy};
use crate::limits::{check_name, check_tags, check_version};
use crate::machine::encode_at;
use crate::{
    At, DEFAULT_NAMESPACE, Error, Job, JobMachine, JobState, KeyScope, Machine, NewInstance, Result,
};

/// The built-in machine that every schedule is an instance of. A schedule whose states are made by code is of a machine
/// of its own, named after it: `dormouse.schedule:` and its name.
pub const SCHEDULE_MACHINE: &str = "dormouse.schedule";

/// The most occurrences that a catch-up window or a backfill may have.
pub const OCCURRENCES_MAX: u64 = 10_000;

/// The longest name of a schedule, and the longest start of its runs' keys, in bytes: a moment is added to it.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 200;

/// The shortest time between two occurrences.
const EVERY_MIN: SignedDuration = SignedDuration::from_secs(1);

/// The longest time between two occurrences, the longest window and the longest jitter.
const SPAN_MAX: SignedDuration = SignedDuration::from_hours(24 * 366 * 100);

/// The longest cron expression, in bytes.
const CRON_BYTES_MAX: usize = 255;

/// When something starts again and again, and what. Declare it with
/// [`EngineBuilder::schedule`](crate::EngineBuilder::schedule), or create it with
/// [`Client::schedules`](crate::Client::schedules).
///
/// ```
/// use std::time::Duration;
/// use dormouse::{CatchUp, Overlap, Schedule};
/// # use dormouse::prelude::*;
/// # struct Report;
/// # impl Job for Report {
/// #     const NAME: &'static str = "report";
/// #     type Input = String;
/// #     type Output = ();
/// #     async fn run(&self, _: String, _: &Context) -> Result<(), BoxError> { Ok(()) }
/// # }
///
/// let nightly = Schedule::cron("nightly-report", "0 3 * * *")
///     .zone("Europe/Berlin")
///     .start_job::<Report>("sales".to_owned())
///     .overlap(Overlap::Wait)
///     .catch_up(CatchUp::Within(Duration::from_secs(86_400).try_into()?));
/// # Ok::<(), dormouse::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "a schedule does nothing before it is declared or created"]
pub struct Schedule {
    /// Its name, unique in its namespace.
    pub name: String,
    /// When it happens.
    pub when: Timing,
    /// The time zone of a cron expression, by its IANA name.
    pub zone: String,
    /// What each occurrence starts.
    pub starts: Starts,
    /// What happens at an occurrence while an earlier run lives.
    pub overlap: Overlap,
    /// What happens to occurrences that nobody was there to start.
    pub catch_up: CatchUp,
    /// Delays each occurrence by up to this much, by its own fixed share of it.
    #[serde(default, skip_serializing_if = "SignedDuration::is_zero")]
    pub jitter: SignedDuration,
    /// No occurrence before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// No occurrence after this moment; the schedule is then done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The schedule is done after it has started this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_max: Option<u64>,
    /// The namespace that an engine declares it in. A client uses its own.
    #[serde(skip)]
    pub namespace: Option<String>,
}

/// When a schedule happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// At the moments that match a cron expression of 5 fields, of 6 with seconds first, or of 7 with years last.
    Cron(String),
    /// Again and again after this long, counted from [`Schedule::from`], or else from 1970-01-01T00:00Z.
    Every(SignedDuration),
}

/// What each occurrence of a schedule starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starts {
    /// The machine's name.
    pub machine: String,
    /// The version of its code; by default the newest that is declared at the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Where it starts. In a text of its state, `{{scheduled_at}}`, `{{schedule}}` and `{{number}}` stand for the
    /// occurrence's moment, the schedule's name, and how many it has started before. `None`: code makes it, see
    /// [`EngineBuilder::schedule_with`](crate::EngineBuilder::schedule_with).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
    /// Its queue; by default the machine's own. The schedule itself waits there too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Its priority; lower runs earlier.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Its lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// Its share; by default the namespace's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The start of its key, before `@` and the occurrence's moment; by default the schedule's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_prefix: Option<String>,
    /// Whether it may be created although nobody declares the machine. A typed start needs no declaration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub even_if_unknown: bool,
}

/// One moment of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occurrence {
    /// The schedule.
    pub schedule: String,
    /// The moment that it is scheduled for, whenever it runs.
    pub scheduled_at: Timestamp,
    /// How many the schedule has started before.
    pub number: u64,
    /// Whether somebody asked for it, and not the calendar.
    pub is_manual: bool,
}

impl Schedule {
    /// Happens at the moments that match a cron expression: five fields (minute, hour, day, month, weekday), or six with
    /// seconds first. In UTC, unless [`Schedule::zone`] says otherwise.
    pub fn cron(name: impl Into<String>, expression: impl Into<String>) -> Self {
        Self::new(name.into(), Timing::Cron(expression.into()))
    }

    /// Happens every so often: at least a second, counted from [`Schedule::from`], or else from 1970-01-01T00:00Z, so
    /// that every five minutes is at :00, :05 and so on.
    pub fn every(name: impl Into<String>, every: Duration) -> Self {
        let every = SignedDuration::try_from(every).unwrap_or(SignedDuration::MAX);
        Self::new(name.into(), Timing::Every(every))
    }

    fn new(name: String, when: Timing) -> Self {
        Self {
            name,
            when,
            zone: "UTC".to_owned(),
            starts: Starts::default(),
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            jitter: SignedDuration::ZERO,
            from: None,
            until: None,
            runs_max: None,
            namespace: None,
        }
    }

    /// Starts an instance of a machine at each occurrence.
    pub fn start<M: Machine>(mut self, state: M::State) -> Self {
        // A state that is not one is reported by the check, as a place without a name.
        let at = encode_at(&state).unwrap_or(At { step: "".into(), state: crate::Json::null() });
        self.starts.at = Some(at);
        self.starting::<M>()
    }

    /// Starts a job at each occurrence.
    pub fn start_job<J: Job>(self, input: J::Input) -> Self {
        self.start::<JobMachine<J>>(JobState::Run(input))
    }

    /// Starts an instance of a machine known by name, at a step and state. A text in the state may hold
    /// `{{scheduled_at}}`, `{{schedule}}` and `{{number}}`.
    pub fn start_named(mut self, machine: impl Into<String>, at: At) -> Self {
        self.starts.machine = machine.into();
        self.starts.at = Some(at);
        self
    }

    pub(crate) fn starting<M: Machine>(mut self) -> Self {
        M::NAME.clone_into(&mut self.starts.machine);
        self.starts.version = Some(M::VERSION);
        self.starts.even_if_unknown = true;
        self.starts.queue.get_or_insert_with(|| M::QUEUE.to_owned());
        self
    }

    /// Sets the time zone of the cron expression, by its IANA name, such as `Europe/Berlin`.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = zone.into();
        self
    }

    /// Sets what happens at an occurrence while an earlier run lives; by default it is skipped.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets what happens to occurrences that nobody was there to start; by default the last of them is started.
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.catch_up = catch_up;
        self
    }

    /// Delays each occurrence by up to this much. The delay of an occurrence is always the same.
    pub fn jitter(mut self, up_to: Duration) -> Self {
        self.jitter = SignedDuration::try_from(up_to).unwrap_or(SignedDuration::MAX);
        self
    }

    /// Sets the moment before which nothing occurs.
    pub fn from(mut self, from: Timestamp) -> Self {
        self.from = Some(from);
        self
    }

    /// Sets the moment after which nothing occurs.
    pub fn until(mut self, until: Timestamp) -> Self {
        self.until = Some(until);
        self
    }

    /// Sets after how many starts the schedule is done.
    pub fn runs_max(mut self, runs_max: u64) -> Self {
        self.runs_max = Some(runs_max);
        self
    }

    /// Sets the queue of what it starts, and of the schedule itself.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.starts.queue = Some(queue.into());
        self
    }

    /// Sets the priority of what it starts; lower runs earlier.
    pub fn priority(mut self, priority: i32) -> Self {
        self.starts.priority = priority;
        self
    }

    /// Sets the lane of what it starts.
    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.starts.lane = Some(lane.into());
        self
    }

    /// Sets the share of what it starts: whose turn it is in its queue.
    pub fn share(mut self, share: impl Into<String>) -> Self {
        self.starts.share = Some(share.into());
        self
    }

    /// Adds a tag to what it starts.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.starts.tags.push(tag.into());
        self
    }

    /// Sets the start of the keys of what it starts, before `@` and the occurrence's moment.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.starts.key_prefix = Some(prefix.into());
        self
    }

    /// Lets it be created even if no worker has ever declared the machine: its runs wait until one does.
    pub fn even_if_unknown(mut self) -> Self {
        self.starts.even_if_unknown = true;
        self
    }

    /// Sets the namespace that an engine declares it in; by default `default`.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The next moments after `after`, at most `count` of them, without jitter.
    pub fn next(&self, after: Timestamp, count: usize) -> Result<Vec<Timestamp>> {
        let calendar = self.calendar()?;
        Ok(calendar.after(after).take(count).collect())
    }

    /// Refuses a schedule that could not happen, or not be stored.
    pub(crate) fn check(&self) -> Result<Calendar> {
        check_schedule_name("schedule name", &self.name)?;
        let calendar = self.calendar()?;
        for (what, span) in [("jitter", Some(self.jitter)), ("catch-up window", self.window())] {
            if span.is_some_and(|span| span.is_negative() || span > SPAN_MAX) {
                return Err(self.refused(format!("its {what} is not between nothing and 100 years")));
            }
        }
        if self.runs_max == Some(0) {
            return Err(self.refused("it may start 0 runs; allow at least 1".to_owned()));
        }
        if let (Some(from), Some(until)) = (self.from, self.until)
            && until < from
        {
            return Err(self.refused(format!("it ends at {until}, before it begins at {from}")));
        }
        if let Some(window) = self.window() {
            // Where nothing says when it begins, any stretch of that length will do.
            let begin = self.from.unwrap_or(SAMPLE);
            self.check_count(
                &calendar,
                "catch-up window",
                begin,
                begin.saturating_add(window).unwrap_or(begin),
            )?;
        }
        let Starts { machine, version, queue, lane, share, tags, key_prefix, .. } = &self.starts;
        if machine.is_empty() {
            return Err(self.refused("it starts nothing: name a machine".to_owned()));
        }
        check_name("machine name", machine)?;
        version.map_or(Ok(()), check_version).map_err(|reason| self.refused(reason))?;
        queue.as_deref().map_or(Ok(()), |queue| check_name("queue", queue))?;
        lane.as_deref().map_or(Ok(()), |lane| check_name("lane", lane))?;
        share.as_deref().map_or(Ok(()), |share| check_name("share", share))?;
        check_tags(tags)?;
        key_prefix.as_deref().map_or(Ok(()), |prefix| check_schedule_name("key prefix", prefix))?;
        Ok(calendar)
    }

    /// Refuses a stretch of time with more occurrences than may be started at once.
    pub(crate) fn check_count(
        &self,
        calendar: &Calendar,
        what: &str,
        after: Timestamp,
        to: Timestamp,
    ) -> Result<u64> {
        let count = calendar.count(after, to);
        if count <= OCCURRENCES_MAX {
            return Ok(count);
        }
        let is_cut = count == Calendar::COUNTED_MAX && !calendar.counts_exactly();
        let told = if is_cut { format!("{count} or more") } else { count.to_string() };
        Err(self.refused(format!(
            "its {what} would start {told} runs, and at most {OCCURRENCES_MAX} may be started at once: choose a shorter one"
        )))
    }

    /// Its calendar, if its timing and its zone can be read.
    pub(crate) fn calendar(&self) -> Result<Calendar> {
        match &self.when {
            Timing::Cron(expression) if expression.len() > CRON_BYTES_MAX => {
                return Err(self.refused(format!("its cron expression is over {CRON_BYTES_MAX} bytes")));
            }
            Timing::Every(every) if *every < EVERY_MIN || *every > SPAN_MAX => {
                return Err(self.refused(
                    "it happens more than once a second, or less than once in 100 years".to_owned(),
                ));
            }
            Timing::Cron(_) | Timing::Every(_) => {}
        }
        Calendar::of(self).map_err(|reason| self.refused(reason))
    }

    fn window(&self) -> Option<SignedDuration> {
        match self.catch_up {
            CatchUp::Within(window) => Some(window),
            CatchUp::None | CatchUp::Last => None,
        }
    }

    fn refused(&self, reason: String) -> Error {
        Error::InvalidSchedule { schedule: self.name.chars().take(64).collect(), reason }
    }

    /// The machine that this schedule is an instance of.
    pub(crate) fn own_machine(&self) -> String {
        match self.starts.at {
            Some(_) => SCHEDULE_MACHINE.to_owned(),
            None => format!("{SCHEDULE_MACHINE}:{}", self.name),
        }
    }

    /// The key of a schedule's own instance.
    pub(crate) fn key_of(name: &str) -> String {
        format!("{KEY_PREFIX}{name}")
    }

    /// Where its runs' keys start.
    pub(crate) fn run_prefix(&self) -> String {
        format!("{}@", self.starts.key_prefix.as_deref().unwrap_or(&self.name))
    }

    /// The instance that an occurrence starts. The key holds the occurrence, and ended instances hold their key too, so
    /// an occurrence starts once however often it is asked for.
    pub(crate) fn run(&self, occurrence: &Occurrence, at: At, version: u32) -> NewInstance {
        let Starts { machine, queue, priority, lane, share, tags, .. } = &self.starts;
        let manual = if occurrence.is_manual { "/run" } else { "" };
        let key = format!("{}{}{manual}", self.run_prefix(), occurrence.scheduled_at);
        NewInstance {
            queue: queue.clone().unwrap_or_else(|| "default".to_owned()),
            priority: *priority,
            lane: lane.clone(),
            share: share.clone(),
            tags: tags.clone(),
            even_if_unknown: true,
            ..NewInstance::named(&**machine, version, at)
        }
        .key(key)
        .key_scope(KeyScope::Always)
    }

    /// The state of a run, with the occurrence in it. `None` if code makes it.
    pub(crate) fn place(&self, occurrence: &Occurrence) -> Option<At> {
        let At { step, state } = self.starts.at.as_ref()?;
        Some(At { step: step.clone(), state: template::filled(state, occurrence) })
    }

    pub(crate) fn declared_in(&self) -> &str {
        self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }
}

/// Where the keys of schedules start.
pub(crate) const KEY_PREFIX: &str = "schedule:";

/// A moment from which occurrences are counted where a schedule names none.
const SAMPLE: Timestamp = Timestamp::UNIX_EPOCH;

pub(crate) fn check_schedule_name(what: &'static str, name: &str) -> Result<()> {
    check_name(what, name)?;
    if name.len() > SCHEDULE_NAME_BYTES_MAX {
        let value = name.chars().take(64).collect();
        return Err(Error::InvalidName { what, value, reason: "it is over 200 bytes" });
    }
    Ok(())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(priority: &i32) -> bool {
    *priority == 0
}
