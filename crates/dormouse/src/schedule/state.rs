//! What a schedule remembers, and the commands it takes.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Schedule;
use crate::words::words;
use crate::{InstanceId, NewInstance, Signal};

/// The signal that carries commands.
pub(crate) const COMMAND: Signal<Command> = Signal::named("schedule");

/// What can be asked of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    /// Starts one run beside the calendar.
    Run,
    /// Starts every occurrence after one moment, up to and with another.
    Backfill { after: Timestamp, to: Timestamp },
    /// Becomes another schedule of the same name.
    Change(Box<Schedule>),
    /// Code declares it.
    Declare(Box<Schedule>),
    /// A run has ended that something waits for. What watched it says so in its last step, when it still lives itself.
    Ended { watcher: InstanceId },
}

/// The steps of the built-in machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ScheduleState {
    /// Waits for the next occurrence, or for a command.
    Watch(Box<Memory>),
    /// Has started runs.
    Started(Box<Memory>),
    /// Starts one run and waits for its end, for a schedule in which another waits in line behind it.
    Run {
        /// The schedule.
        schedule: InstanceId,
        /// What to start.
        run: Box<NewInstance>,
    },
    /// That run has ended.
    Ended {
        /// The schedule.
        schedule: InstanceId,
    },
}

/// What a schedule remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// The schedule as it is.
    pub(crate) schedule: Schedule,
    /// The schedule as code declared it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) declared: Option<Schedule>,
    /// Every occurrence up to this moment was looked at.
    pub(crate) cursor: Timestamp,
    /// What is to be started, in order.
    #[serde(default, skip_serializing_if = "Todo::is_empty")]
    pub(crate) todo: Todo,
    /// The keys of the runs that were started last, until their ids are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) starting: Vec<String>,
    /// Its live runs, as far as its overlap policy needs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) running: Vec<Run>,
    /// How many runs it has started.
    pub(crate) started: u64,
    /// How many of them count towards the most that it may start: those that the calendar asked for.
    pub(crate) counted: u64,
    /// The occurrence that was started last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<Timestamp>,
    /// The last moment at which somebody asked for a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_asked: Option<Timestamp>,
    /// How many occurrences were not started.
    pub(crate) missed: u64,
    /// The last of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) recently_missed: Vec<Missed>,
    /// Why the last command was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
}

/// What a schedule is to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Todo {
    /// Moments at which somebody asked for a run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) manual: Vec<Timestamp>,
    /// Occurrences whose time has come.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) due: Vec<Stretch>,
    /// Occurrences that somebody asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) backfill: Vec<Stretch>,
}

impl Todo {
    pub(crate) fn is_empty(&self) -> bool {
        self.manual.is_empty() && self.due.is_empty() && self.backfill.is_empty()
    }
}

/// All occurrences after one moment, up to and with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stretch {
    pub(crate) after: Timestamp,
    pub(crate) to: Timestamp,
}

/// A run of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The run, or the instance that waits for its end.
    pub(crate) id: InstanceId,
    /// The run's key.
    pub(crate) key: String,
}

/// Occurrences of a schedule that were not started, one after the other for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// The last of them.
    pub at: Timestamp,
    /// How many, counted up to 10,000.
    pub count: u64,
    /// Why.
    pub why: MissedWhy,
}

words! {
    /// Why an occurrence was not started.
    MissedWhy: "reason to miss an occurrence" {
        /// An earlier run still lived.
        Overlap => "overlap",
        /// Nobody was there to start it, and its catch-up policy does not ask for it.
        Late => "late",
        /// A later occurrence took its place.
        Replaced => "replaced",
        /// Too much was waiting to be started.
        Full => "full",
    }
}

impl Memory {
    /// A schedule that was just created.
    pub(crate) fn new(schedule: Schedule, declared: Option<Schedule>, now: Timestamp) -> Self {
        Self {
            schedule,
            declared,
            cursor: now,
            todo: Todo::default(),
            starting: Vec::new(),
            running: Vec::new(),
            started: 0,
            counted: 0,
            last: None,
            last_asked: None,
            missed: 0,
            recently_missed: Vec::new(),
            refused: None,
        }
    }

    /// Notes occurrences that are not started.
    pub(super) fn miss(&mut self, at: Timestamp, count: u64, why: MissedWhy) {
        if count == 0 {
            return;
        }
        self.missed += count;
        match self.recently_missed.last_mut() {
            // A row of the same kind is one entry, so that a short period does not push out everything else.
            Some(last) if last.why == why && at.duration_since(last.at) < ONE_ENTRY => {
                last.at = at;
                last.count += count;
            }
            _ => self.recently_missed.push(Missed { at, count, why }),
        }
        let surplus = self.recently_missed.len().saturating_sub(MISSED_MAX);
        self.recently_missed.drain(..surplus);
    }
}

/// Entries of missed occurrences that are kept.
const MISSED_MAX: usize = 50;

/// Occurrences that are missed within this time for the same reason are one entry.
const ONE_ENTRY: SignedDuration = SignedDuration::from_mins(10);
