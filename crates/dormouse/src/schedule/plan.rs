//! What a schedule does at a moment: which occurrences are due, which are missed, which start, and when to look again.
//!
//! Pure: what it knows of its runs is in its memory.

use jiff::{SignedDuration, Timestamp};

use super::state::{Command, Memory, MissedWhy, Stretch};
use super::{Calendar, CatchUp, Occurrence, Overlap, Schedule};

/// An occurrence that is late by up to this much is not missed.
const LATE_MAX: SignedDuration = SignedDuration::from_secs(10);

/// Runs that are started in one commit.
const STARTS_MAX: usize = 100;

/// Stretches, or single runs, that may wait to be started.
const WAITING_MAX: usize = 100;

/// Missed occurrences are counted up to this number at a time.
const MISSED_COUNTED_MAX: usize = 10_000;

/// While something waits for the end of a run, the schedule looks at that run at least this often. A run's end is
/// reported, so this is only the floor, for runs that nobody reports.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(60);

/// The smallest step between two moments.
const TICK: SignedDuration = SignedDuration::from_micros(1);

/// What a schedule does now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What starts.
    pub(crate) starts: Vec<Occurrence>,
    /// Whether the ends of these runs must be reported, because something waits for them.
    pub(crate) is_watched: bool,
    /// Whether its live runs are cancelled.
    pub(crate) cancels: bool,
    /// When to look again.
    pub(crate) wake_at: Option<Timestamp>,
    /// Whether nothing more will ever start.
    pub(crate) is_done: bool,
}

/// Decides what a schedule does now, and notes it in its memory.
pub(crate) fn plan(memory: &mut Memory, calendar: &Calendar, now: Timestamp) -> Plan {
    memory.admit(calendar, now);
    let mut plan = Plan::default();
    memory.choose(calendar, &mut plan);
    let next = match memory.is_used_up() {
        true => None,
        false => calendar.next(memory.cursor).map(|at| memory.schedule.due_at(at)),
    };
    let look_again = (!memory.todo.is_empty()).then(|| later(now, LOOK_EVERY));
    plan.wake_at = next.into_iter().chain(look_again).min();
    plan.is_done = plan.wake_at.is_none() && plan.starts.is_empty();
    plan
}

impl Memory {
    /// Applies a command, as it came.
    pub(crate) fn apply(&mut self, command: Command, calendar: &Calendar, now: Timestamp) {
        self.refused = None;
        match command {
            Command::Ended { watcher } => self.running.retain(|run| run.id != watcher),
            Command::Run if self.todo.manual.len() >= WAITING_MAX => self.miss(now, 1, MissedWhy::Full),
            Command::Run => {
                // Two requests of one moment are two runs.
                let at = self.last_asked.map_or(now, |last| now.max(later(last, TICK)));
                self.last_asked = Some(at);
                self.todo.manual.push(at);
            }
            Command::Backfill { after, to } => match self
                .schedule
                .check_count(calendar, "backfill", after, to)
            {
                Ok(count) if self.todo.backfill.len() >= WAITING_MAX => self.miss(to, count, MissedWhy::Full),
                Ok(_) => self.todo.backfill.push(Stretch { after, to }),
                Err(refused) => self.refused = Some(refused.to_string()),
            },
            Command::Change(schedule) => self.become_another(*schedule, calendar, now),
            Command::Declare(declared) => {
                let is_as_declared = self.declared.as_ref() == Some(&self.schedule);
                let before = self.declared.replace((*declared).clone());
                // What somebody changed by hand stays as it is.
                if is_as_declared && before.as_ref() != Some(&declared) {
                    self.become_another(*declared, calendar, now);
                }
            }
        }
    }

    /// Becomes another schedule. What is due by the old one is started; from now on the new one counts.
    fn become_another(&mut self, schedule: Schedule, calendar: &Calendar, now: Timestamp) {
        let schedule = Schedule { namespace: None, ..schedule };
        match schedule.check() {
            Err(refused) => self.refused = Some(refused.to_string()),
            Ok(_) if schedule.name != self.schedule.name => {
                self.refused = Some(format!("a schedule cannot be renamed to {:?}", schedule.name));
            }
            Ok(_) => {
                self.admit(calendar, now);
                self.cursor = self.cursor.max(now);
                let is_same_time =
                    |old: &Self| old.schedule.when == schedule.when && old.schedule.zone == schedule.zone;
                if !is_same_time(self) {
                    self.drop_waiting(calendar);
                }
                self.schedule = schedule;
            }
        }
    }

    /// Gives up what waits in line, which another calendar would not know.
    fn drop_waiting(&mut self, calendar: &Calendar) {
        let due = std::mem::take(&mut self.todo.due);
        for Stretch { after, to } in due.into_iter().chain(std::mem::take(&mut self.todo.backfill)) {
            self.miss(to, calendar.count(after, to), MissedWhy::Replaced);
        }
    }

    /// Looks at every occurrence whose time has come, and decides by its catch-up policy whether it is started.
    fn admit(&mut self, calendar: &Calendar, now: Timestamp) {
        if self.is_used_up() {
            return;
        }
        let catch_up = self.schedule.catch_up;
        let window = match catch_up {
            CatchUp::None | CatchUp::Last => LATE_MAX,
            CatchUp::Within(window) => window.max(LATE_MAX),
        };
        // What is as old as the window is not older.
        let oldest = earlier(earlier(earlier(now, window), self.schedule.jitter), TICK);
        let mut due = Vec::new();
        if self.cursor < oldest {
            let late =
                calendar.after(self.cursor).take_while(|at| *at <= oldest).take(MISSED_COUNTED_MAX).count();
            if late > 0 {
                let last = calendar.last(self.cursor, oldest).unwrap_or(oldest);
                let is_kept = catch_up == CatchUp::Last;
                due.extend(is_kept.then_some(last));
                self.miss(last, late as u64 - u64::from(is_kept), MissedWhy::Late);
            }
            self.cursor = oldest;
        }
        for at in calendar.after(self.cursor) {
            let due_at = self.schedule.due_at(at);
            if due_at > now {
                break;
            }
            self.cursor = at;
            if catch_up != CatchUp::Last && now.duration_since(due_at) > window {
                self.miss(at, 1, MissedWhy::Late);
            } else {
                due.push(at);
            }
        }
        if catch_up == CatchUp::Last && due.len() > 1 {
            let last = due.split_off(due.len() - 1);
            self.miss(due[due.len() - 1], due.len() as u64, MissedWhy::Late);
            due = last;
        }
        self.line_up(&due, calendar);
    }

    /// Puts occurrences, which follow each other, in line.
    fn line_up(&mut self, due: &[Timestamp], calendar: &Calendar) {
        let (Some(first), Some(last)) = (due.first(), due.last()) else { return };
        let is_full = self.todo.due.len() >= WAITING_MAX;
        match self.todo.due.last_mut() {
            Some(stretch) if calendar.next(stretch.to) == Some(*first) => stretch.to = *last,
            _ if is_full => self.miss(*last, due.len() as u64, MissedWhy::Full),
            _ => self.todo.due.push(Stretch { after: earlier(*first, TICK), to: *last }),
        }
    }

    /// Chooses what starts now, by its overlap policy. A run that somebody asked for starts whatever else runs.
    fn choose(&mut self, calendar: &Calendar, plan: &mut Plan) {
        let overlap = self.schedule.overlap;
        let manual = self.todo.manual.len().min(STARTS_MAX);
        for at in self.todo.manual.drain(..manual).collect::<Vec<_>>() {
            self.start(at, true, plan);
        }
        while plan.starts.len() < STARTS_MAX && !self.is_used_up() {
            let Some(at) = take(&mut self.todo.due, calendar, Take::Look) else { break };
            let is_busy = !self.running.is_empty() || !plan.starts.is_empty();
            match overlap {
                Overlap::Allow => {}
                Overlap::Skip if is_busy => {
                    take(&mut self.todo.due, calendar, Take::Remove);
                    self.miss(at, 1, MissedWhy::Overlap);
                    continue;
                }
                Overlap::Cancel if self.todo.due.len() > 1 || self.todo.due[0].to > at => {
                    take(&mut self.todo.due, calendar, Take::Remove);
                    self.miss(at, 1, MissedWhy::Replaced);
                    continue;
                }
                Overlap::Cancel if is_busy => {
                    plan.cancels = true;
                    break;
                }
                Overlap::Wait if is_busy => break,
                Overlap::Skip | Overlap::Wait | Overlap::Cancel => {}
            }
            take(&mut self.todo.due, calendar, Take::Remove);
            self.start(at, false, plan);
            self.counted += 1;
        }
        if self.is_used_up() {
            self.todo.due.clear();
        }
        while plan.starts.len() < STARTS_MAX {
            let is_busy = !self.running.is_empty() || !plan.starts.is_empty();
            if is_busy && overlap != Overlap::Allow {
                break;
            }
            let Some(at) = take(&mut self.todo.backfill, calendar, Take::Remove) else { break };
            self.start(at, false, plan);
        }
        plan.is_watched = match overlap {
            Overlap::Allow => false,
            Overlap::Skip => !self.todo.backfill.is_empty(),
            Overlap::Wait | Overlap::Cancel => true,
        };
    }

    fn start(&mut self, at: Timestamp, is_manual: bool, plan: &mut Plan) {
        let (schedule, number) = (self.schedule.name.clone(), self.started);
        plan.starts.push(Occurrence { schedule, scheduled_at: at, number, is_manual });
        self.started += 1;
        self.last = Some(at);
    }

    /// Whether it has started as many as it may.
    fn is_used_up(&self) -> bool {
        self.schedule.runs_max.is_some_and(|runs_max| self.counted >= runs_max)
    }
}

impl Schedule {
    /// When an occurrence starts: later than its moment by its own share of the jitter.
    pub(crate) fn due_at(&self, at: Timestamp) -> Timestamp {
        let jitter_us = self.jitter.as_micros().unsigned_abs();
        if jitter_us == 0 {
            return at;
        }
        let share = u128::from(spread(&self.name, at)) % jitter_us;
        later(at, SignedDuration::from_micros(i64::try_from(share).unwrap_or(i64::MAX)))
    }
}

/// A number that an occurrence always has, and that others do not share: FNV-1a over its name and moment, mixed once.
fn spread(name: &str, at: Timestamp) -> u64 {
    let bytes = name.bytes().chain(at.as_microsecond().to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Take {
    Look,
    Remove,
}

/// The first occurrence of these stretches. Stretches without any are removed.
fn take(stretches: &mut Vec<Stretch>, calendar: &Calendar, how: Take) -> Option<Timestamp> {
    while let Some(stretch) = stretches.first_mut() {
        if let Some(at) = calendar.next(stretch.after).filter(|at| *at <= stretch.to) {
            if how == Take::Remove {
                stretch.after = at;
                if stretch.after >= stretch.to {
                    stretches.remove(0);
                }
            }
            return Some(at);
        }
        stretches.remove(0);
    }
    None
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn earlier(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_sub(by).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Missed, Run};
    use crate::{InstanceId, Json};

    const START: &str = "2030-01-01T00:00:00Z";

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a moment")
    }

    fn hourly() -> Schedule {
        let place = crate::At { step: "start".into(), state: Json::null() };
        Schedule::cron("s", "0 * * * *").start_named("m", place)
    }

    /// What a schedule that was created at the start does at these moments.
    fn planned(schedule: Schedule, moments: &[&str]) -> (Memory, Vec<Vec<String>>) {
        let calendar = schedule.calendar().expect("a calendar");
        let mut memory = Memory::new(schedule, None, at(START));
        let starts = moments.iter().map(|moment| {
            let plan = plan(&mut memory, &calendar, at(moment));
            plan.starts
                .iter()
                .map(|occurrence| occurrence.scheduled_at.strftime("%H:%M").to_string())
                .collect()
        });
        let starts = starts.collect();
        (memory, starts)
    }

    #[test]
    fn what_is_due_starts_once_and_time_that_goes_back_starts_nothing() {
        let (memory, starts) = planned(
            hourly(),
            &[START, "2030-01-01T01:00:00Z", "2030-01-01T01:00:00Z", "2030-01-01T00:30:00Z"],
        );
        assert_eq!(starts, [vec![], vec!["01:00"], vec![], vec![]]);
        assert_eq!((memory.started, memory.missed), (1, 0));
    }

    #[test]
    fn catch_up_decides_about_what_is_late() {
        for (catch_up, expected, missed) in [
            (CatchUp::None, vec![], 5),
            (CatchUp::Last, vec!["05:00"], 4),
            (CatchUp::Within(SignedDuration::from_hours(2)), vec!["04:00", "05:00"], 3),
            (
                CatchUp::Within(SignedDuration::from_hours(9)),
                vec!["01:00", "02:00", "03:00", "04:00", "05:00"],
                0,
            ),
        ] {
            let schedule = hourly().overlap(Overlap::Allow).catch_up(catch_up);
            let (memory, starts) = planned(schedule, &["2030-01-01T05:30:00Z"]);
            assert_eq!(
                (&starts[0], memory.missed),
                (&expected.iter().map(ToString::to_string).collect(), missed)
            );
        }
    }

    #[test]
    fn years_of_downtime_cost_no_more_than_a_bounded_look() {
        let secondly = Schedule { when: crate::Timing::Cron("* * * * * *".to_owned()), ..hourly() };
        let (memory, starts) = planned(secondly, &["2040-01-01T00:00:00Z"]);
        assert_eq!(starts, [["00:00"]]);
        assert_eq!(memory.cursor, at("2040-01-01T00:00:00Z"));
        assert!(memory.missed >= MISSED_COUNTED_MAX as u64);
    }

    #[test]
    fn a_line_is_kept_as_a_stretch_and_not_as_a_list() {
        let schedule = hourly().overlap(Overlap::Wait);
        let calendar = schedule.calendar().expect("a calendar");
        let mut memory = Memory::new(schedule, None, at(START));
        memory.running.push(Run { id: InstanceId(1), key: "k".to_owned() });
        for hour in 1..=9 {
            let plan = plan(&mut memory, &calendar, at(&format!("2030-01-01T0{hour}:00:00Z")));
            assert!(plan.starts.is_empty() && !plan.is_done);
        }
        assert_eq!(memory.todo.due.len(), 1);
        memory.running.clear();
        let plan = plan(&mut memory, &calendar, at("2030-01-01T09:00:01Z"));
        assert_eq!(plan.starts[0].scheduled_at, at("2030-01-01T01:00:00Z"), "the first in line");
        assert!(plan.is_watched && plan.starts.len() == 1);
    }

    #[test]
    fn what_is_missed_in_a_row_is_one_entry() {
        let mut memory = Memory::new(hourly(), None, at(START));
        for minute in 10..30 {
            memory.miss(at(&format!("2030-01-01T00:{minute}:00Z")), 2, MissedWhy::Overlap);
        }
        memory.miss(at("2030-01-01T00:30:00Z"), 1, MissedWhy::Late);
        let expected = [
            Missed { at: at("2030-01-01T00:29:00Z"), count: 40, why: MissedWhy::Overlap },
            Missed { at: at("2030-01-01T00:30:00Z"), count: 1, why: MissedWhy::Late },
        ];
        assert_eq!((memory.missed, memory.recently_missed), (41, expected.to_vec()));
    }

    #[test]
    fn jitter_is_always_the_same_and_spreads() {
        let schedule = hourly().jitter(std::time::Duration::from_secs(600));
        let shares: Vec<i128> = (0..200)
            .map(|hour| at(START) + SignedDuration::from_hours(hour))
            .map(|at| schedule.due_at(at).duration_since(at).as_millis())
            .collect();
        assert!(shares.iter().all(|share| (0..600_000).contains(share)));
        let early = shares.iter().filter(|share| **share < 300_000).count();
        assert!((60..140).contains(&early), "{early} of 200 are in the first half");
        assert_eq!(schedule.due_at(at(START)), schedule.due_at(at(START)));
    }

    #[test]
    fn a_command_that_cannot_be_is_noted_and_changes_nothing() {
        let schedule = hourly();
        let calendar = schedule.calendar().expect("a calendar");
        let mut memory = Memory::new(schedule, None, at(START));
        for command in [
            Command::Change(Box::new(
                Schedule::cron("other", "0 * * * *")
                    .start_named("m", crate::At { step: "start".into(), state: Json::null() }),
            )),
            Command::Change(Box::new(Schedule::cron("s", "never"))),
            Command::Backfill { after: at("1000-01-01T00:00:00Z"), to: at(START) },
        ] {
            let before = memory.clone();
            memory.apply(command, &calendar, at(START));
            assert!(memory.refused.take().is_some());
            assert_eq!(memory, Memory { refused: None, ..before });
        }
    }
}
