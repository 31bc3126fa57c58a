//! A schedule's calendar: its moments, in a time zone.
//!
//! A cron expression is about the wall clock, which a zone sometimes moves. An expression whose second, minute or hour
//! starts with `*` is **periodic**: it happens whenever the wall clock shows a matching time, so not at all in an hour
//! that is skipped, and again in an hour that comes twice. Any other is **fixed**: each matching time of a day happens
//! once. If it is skipped, it happens at the moment of the jump; if it comes twice, it happens the first time.

use croner::Cron;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::{Schedule, Timing};

/// The moments of a schedule.
#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    timing: Compiled,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
}

#[derive(Clone, Debug)]
enum Compiled {
    Cron { cron: Box<Cron>, zone: TimeZone, is_fixed: bool },
    Every { every_us: i64, anchor_us: i64 },
}

impl Calendar {
    /// Occurrences are counted up to this number.
    pub(crate) const COUNTED_MAX: u64 = 100_000;

    /// The calendar of a schedule, or why it has none.
    pub(super) fn of(schedule: &Schedule) -> Result<Self, String> {
        let timing = match &schedule.when {
            Timing::Every(every) => Compiled::Every {
                every_us: i64::try_from(every.as_micros())
                    .map_err(|_| "its period is too long".to_owned())?,
                anchor_us: schedule.from.unwrap_or(Timestamp::UNIX_EPOCH).as_microsecond(),
            },
            Timing::Cron(expression) => {
                let cron: Cron = expression.parse().map_err(|error: croner::errors::CronError| {
                    format!("its cron expression {expression:?} cannot be read: {error}")
                })?;
                let zone = TimeZone::get(&schedule.zone).map_err(|_| {
                    format!(
                        "there is no time zone {:?}: use an IANA name, such as Europe/Berlin",
                        schedule.zone
                    )
                })?;
                Compiled::Cron { cron: Box::new(cron), zone, is_fixed: is_fixed(expression) }
            }
        };
        let calendar = Self { timing, from: schedule.from, until: None };
        if calendar.next(Timestamp::UNIX_EPOCH).is_none() {
            return Err("it never happens: no day matches its cron expression".to_owned());
        }
        Ok(Self { until: schedule.until, ..calendar })
    }

    /// The first moment after this one.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = match self.from {
            // The first moment is one too.
            Some(from) if after < from => from.checked_sub(SignedDuration::from_micros(1)).ok()?,
            _ => after,
        };
        let next = match &self.timing {
            Compiled::Every { every_us, anchor_us } => {
                let passed = (after.as_microsecond() - anchor_us).div_euclid(*every_us) + 1;
                let us = passed.checked_mul(*every_us)?.checked_add(*anchor_us)?;
                Timestamp::from_microsecond(us).ok()
            }
            Compiled::Cron { cron, zone, is_fixed } => Wall { cron, zone, is_fixed: *is_fixed }.next(after),
        }?;
        self.until.is_none_or(|until| next <= until).then_some(next)
    }

    /// All moments after this one.
    pub(crate) fn after(&self, after: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
        std::iter::successors(self.next(after), |last| self.next(*last))
    }

    /// The last moment after `after`, up to and with `to`. It looks at longer and longer stretches before `to`, so that
    /// a short period does not make it walk over years.
    pub(crate) fn last(&self, after: Timestamp, to: Timestamp) -> Option<Timestamp> {
        const HOURS: [i64; 5] = [1, 24, 24 * 32, 24 * 367, 24 * 367 * 9];
        let begins = HOURS.iter().filter_map(|hours| to.checked_sub(SignedDuration::from_hours(*hours)).ok());
        let begins = begins.filter(|begin| *begin > after).chain([after]);
        let last_since = |begin| self.after(begin).take_while(|at| *at <= to).last();
        begins.map(last_since).find(Option::is_some).flatten()
    }

    /// Whether [`Calendar::count`] counts any number exactly.
    pub(crate) fn counts_exactly(&self) -> bool {
        matches!(self.timing, Compiled::Every { .. })
    }

    /// How many moments there are after `after`, up to and with `to`; counted up to [`Calendar::COUNTED_MAX`].
    pub(crate) fn count(&self, after: Timestamp, to: Timestamp) -> u64 {
        if let Compiled::Every { every_us, .. } = self.timing {
            let to = self.until.map_or(to, |until| to.min(until));
            let Some(first) = self.next(after).filter(|first| *first <= to) else { return 0 };
            let more = (to.as_microsecond() - first.as_microsecond()) / every_us;
            return more.unsigned_abs() + 1;
        }
        let counted_max = usize::try_from(Self::COUNTED_MAX).unwrap_or(usize::MAX);
        self.after(after).take_while(|at| *at <= to).take(counted_max).count() as u64
    }
}

/// Whether each time of a day that an expression names happens once a day, however the wall clock moves.
fn is_fixed(expression: &str) -> bool {
    let expression = expression.trim();
    if expression.starts_with('@') {
        return !expression.eq_ignore_ascii_case("@hourly");
    }
    let fields: Vec<&str> = expression.split_whitespace().collect();
    // Without seconds, the first two are the minute and the hour.
    let times = if fields.len() > 5 { 3 } else { 2 };
    !fields.iter().take(times).any(|field| field.starts_with('*'))
}

/// A cron expression on the wall clock of a zone.
struct Wall<'a> {
    cron: &'a Cron,
    zone: &'a TimeZone,
    is_fixed: bool,
}

/// The smallest step between two moments here.
const TICK: SignedDuration = SignedDuration::from_micros(1);

impl Wall<'_> {
    /// The first moment after this one. It walks over the stretches of time in which the zone's offset stays the same.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let (mut from, mut is_inclusive) = (after, false);
        loop {
            let offset = self.zone.to_offset(from);
            let shift = self.zone.following(from).next().map(|shift| shift.timestamp());
            let (begin, begin_inclusive) = self.begin(from, offset, is_inclusive);
            let civil = self.cron.find_next_occurrence(&begin, begin_inclusive).ok()?;
            let moment = offset.to_timestamp(civil).ok()?;
            let Some(shift) = shift.filter(|shift| *shift <= moment) else { return Some(moment) };
            // It is not in this stretch. If the clock jumps over it, it happens at the jump.
            let after_shift = self.zone.to_offset(shift).to_datetime(shift);
            if self.is_fixed && civil < after_shift {
                return Some(shift);
            }
            (from, is_inclusive) = (shift, true);
        }
    }

    /// Where to look from in a stretch of one offset: from the moment itself, or, where times are fixed and come again
    /// after the clock was turned back, from the first that is new.
    fn begin(&self, from: Timestamp, offset: Offset, is_inclusive: bool) -> (DateTime, bool) {
        let civil = offset.to_datetime(from);
        if !self.is_fixed {
            return (civil, is_inclusive);
        }
        let shift = from.checked_add(TICK).ok().and_then(|next| self.zone.preceding(next).next());
        let seen_until = shift.and_then(|shift| {
            let before = shift.timestamp().checked_sub(TICK).ok()?;
            Some(self.zone.to_offset(before).to_datetime(shift.timestamp()))
        });
        match seen_until.filter(|seen| *seen > civil) {
            Some(seen) => (seen, true),
            None => (civil, is_inclusive),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &Schedule, after: &str, count: usize) -> Vec<String> {
        let moments =
            schedule.next(after.parse().expect("a moment"), count).expect("a schedule that happens");
        moments.into_iter().map(|at| at.to_string()).collect()
    }

    fn berlin(expression: &str) -> Schedule {
        Schedule::cron("s", expression).zone("Europe/Berlin")
    }

    #[test]
    fn a_fixed_time_in_a_skipped_hour_happens_at_the_jump() {
        // On 2030-03-31 the clock in Berlin jumps from 02:00 to 03:00, at 01:00 UTC.
        assert_eq!(
            next(&berlin("30 2 * * *"), "2030-03-29T12:00:00Z", 3),
            ["2030-03-30T01:30:00Z", "2030-03-31T01:00:00Z", "2030-04-01T00:30:00Z"]
        );
        assert_eq!(
            next(&berlin("0,30 2 * * *"), "2030-03-30T12:00:00Z", 2),
            ["2030-03-31T01:00:00Z", "2030-04-01T00:00:00Z"],
            "two times that are skipped together are one occurrence"
        );
        assert_eq!(
            next(&berlin("0 3 * * *"), "2030-03-30T12:00:00Z", 2),
            ["2030-03-31T01:00:00Z", "2030-04-01T01:00:00Z"],
            "the first time after the jump is no other moment"
        );
    }

    #[test]
    fn a_fixed_time_in_a_doubled_hour_happens_once_and_first() {
        // On 2030-10-27 the clock in Berlin goes back from 03:00 to 02:00, at 01:00 UTC.
        assert_eq!(
            next(&berlin("30 2 * * *"), "2030-10-26T12:00:00Z", 2),
            ["2030-10-27T00:30:00Z", "2030-10-28T01:30:00Z"]
        );
        assert_eq!(
            next(&berlin("30 2 * * *"), "2030-10-27T01:10:00Z", 1),
            ["2030-10-28T01:30:00Z"],
            "asked in the second of the two hours"
        );
        assert_eq!(next(&berlin("0 3 * * *"), "2030-10-26T12:00:00Z", 1), ["2030-10-27T02:00:00Z"]);
    }

    #[test]
    fn a_periodic_one_goes_by_what_the_clock_shows() {
        assert_eq!(
            next(&berlin("0 * * * *"), "2030-03-31T00:00:00Z", 2),
            ["2030-03-31T01:00:00Z", "2030-03-31T02:00:00Z"],
            "an hour that is skipped is not made up for"
        );
        assert_eq!(
            next(&berlin("*/30 * * * *"), "2030-10-27T00:00:00Z", 4),
            ["2030-10-27T00:30:00Z", "2030-10-27T01:00:00Z", "2030-10-27T01:30:00Z", "2030-10-27T02:00:00Z"],
            "an hour that comes twice counts twice"
        );
        assert_eq!(
            next(&berlin("*/30 2 * * *"), "2030-03-30T12:00:00Z", 1),
            ["2030-04-01T00:00:00Z"],
            "in an hour that is skipped it does not happen"
        );
    }

    #[test]
    fn leap_days_come_every_four_years_except_when_they_do_not() {
        let leap = Schedule::cron("s", "0 0 29 2 *");
        assert_eq!(
            next(&leap, "2095-01-01T00:00:00Z", 2),
            ["2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"],
            "2100 is not a leap year"
        );
        let last = Schedule::cron("s", "0 0 L * *");
        assert_eq!(next(&last, "2032-02-01T00:00:00Z", 2), ["2032-02-29T00:00:00Z", "2032-03-31T00:00:00Z"]);
    }

    #[test]
    fn a_zone_whose_rules_change_is_followed() {
        // Moscow stayed on +04 from 2011 and went to +03 on 2014-10-26, without daylight saving.
        let moscow = Schedule::cron("s", "0 12 * * *").zone("Europe/Moscow");
        assert_eq!(
            next(&moscow, "2014-10-24T12:00:00Z", 3),
            ["2014-10-25T08:00:00Z", "2014-10-26T09:00:00Z", "2014-10-27T09:00:00Z"]
        );
        // Samoa went over the date line: there was no 2011-12-30.
        let apia = Schedule::cron("s", "0 12 * * *").zone("Pacific/Apia");
        assert_eq!(
            next(&apia, "2011-12-29T00:00:00Z", 3),
            ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"],
            "the day that was skipped happens at the jump"
        );
    }

    #[test]
    fn seconds_are_optional() {
        let at = "2030-01-01T00:00:00Z";
        assert_eq!(
            next(&Schedule::cron("s", "*/20 * * * * *"), at, 2),
            ["2030-01-01T00:00:20Z", "2030-01-01T00:00:40Z"]
        );
        assert_eq!(
            next(&Schedule::cron("s", "* * * * *"), "2030-01-01T00:00:00.5Z", 1),
            ["2030-01-01T00:01:00Z"]
        );
        assert_eq!(next(&Schedule::cron("s", "@daily"), at, 1), ["2030-01-02T00:00:00Z"]);
    }

    #[test]
    fn a_period_is_counted_from_its_begin_or_from_the_epoch() {
        let five = Schedule::every("s", std::time::Duration::from_secs(300));
        assert_eq!(next(&five, "2030-01-01T00:03:10Z", 2), ["2030-01-01T00:05:00Z", "2030-01-01T00:10:00Z"]);
        let from = five.from("2030-01-01T00:01:30Z".parse().expect("a moment"));
        assert_eq!(
            next(&from, "2020-01-01T00:00:00Z", 2),
            ["2030-01-01T00:01:30Z", "2030-01-01T00:06:30Z"],
            "its begin is an occurrence"
        );
        let from = Schedule::cron("s", "30 1 * * *").from("2030-01-01T01:30:00Z".parse().expect("a moment"));
        assert_eq!(next(&from, "2020-01-01T00:00:00Z", 1), ["2030-01-01T01:30:00Z"]);
    }

    #[test]
    fn an_end_is_the_last_moment_that_counts() {
        let until = Schedule::cron("s", "0 * * * *").until("2030-01-01T02:00:00Z".parse().expect("a moment"));
        assert_eq!(next(&until, "2030-01-01T00:00:00Z", 9), ["2030-01-01T01:00:00Z", "2030-01-01T02:00:00Z"]);
    }

    #[test]
    fn moments_are_counted_without_walking_over_a_period() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a moment");
        let (from, to) = (at("2030-01-01T00:00:00Z"), at("2030-01-02T00:00:00Z"));
        let secondly =
            Schedule::every("s", std::time::Duration::from_secs(1)).calendar().expect("a calendar");
        assert_eq!(secondly.count(from, to), 86_400);
        assert_eq!(secondly.count(to, from), 0);
        assert_eq!(secondly.count(from, at("2130-01-01T00:00:00Z")), 3_155_673_600);
        let hourly = Schedule::cron("s", "0 * * * *").calendar().expect("a calendar");
        assert_eq!(hourly.count(from, to), 24);
        let cron = Schedule::cron("s", "* * * * * *").calendar().expect("a calendar");
        assert_eq!(cron.count(from, at("2130-01-01T00:00:00Z")), Calendar::COUNTED_MAX);
    }

    #[test]
    fn the_last_moment_is_found_from_the_end() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a moment");
        let last = |schedule: Schedule, after, to| {
            let last = schedule.calendar().expect("a calendar").last(at(after), at(to));
            last.map(|at| at.to_string())
        };
        let (long_ago, now) = ("1990-01-01T00:00:00Z", "2030-06-01T12:34:56.5Z");
        for (expression, expected) in [
            ("* * * * * *", "2030-06-01T12:34:56Z"),
            ("0 3 * * *", "2030-06-01T03:00:00Z"),
            ("0 0 1 1 *", "2030-01-01T00:00:00Z"),
            ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
        ] {
            assert_eq!(last(Schedule::cron("s", expression), long_ago, now).as_deref(), Some(expected));
        }
        assert_eq!(last(Schedule::cron("s", "0 3 * * *"), "2030-06-01T03:00:00Z", now), None);
    }

    #[test]
    fn what_cannot_happen_is_refused_with_the_reason() {
        for (schedule, reason) in [
            (Schedule::cron("s", "61 * * * *"), "cannot be read"),
            (Schedule::cron("s", ""), "cannot be read"),
            (Schedule::cron("s", "every day"), "cannot be read"),
            (Schedule::cron("s", "0 0 30 2 *"), "never happens"),
            (Schedule::cron("s", "* * * * *").zone("Mars/Olympus"), "there is no time zone"),
            (Schedule::cron("s", "0 ".repeat(200)), "over 255 bytes"),
            (Schedule::every("s", std::time::Duration::ZERO), "more than once a second"),
            (Schedule::every("s", std::time::Duration::MAX), "less than once in 100 years"),
        ] {
            let refused = schedule.check().expect_err("it is refused").to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
