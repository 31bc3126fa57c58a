//! Limits: how many instances of a lane run at a time, and how many of its steps start in a period.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::check_name;
use crate::{Error, Result};

/// The largest width of a limit, which a limit by rate alone has.
pub const WIDTH_MAX: u32 = 10_000;

/// The most starts in a period that a rate can allow, and the largest burst.
pub const RATE_MAX: u32 = 1_000_000;

/// The shortest and the longest period of a rate.
const PERIODS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(366 * 86_400));
/// How long a bucket may take to fill, at most.
const FILLS_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);

/// How many instances of a lane run at a time, and how many of its steps start in a period. A lane without a limit runs one
/// at a time, at any rate.
///
/// A limit is set for a name ([`Client::set_limit`](crate::Client::set_limit)). The name is a lane, or a family: the part
/// of a lane before its first `/`. A limit of the family `partner` holds for each of `partner/acme` and `partner/globex` by
/// itself, unless that lane has a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// How many run at a time: from 1 to [`WIDTH_MAX`].
    pub width: u32,
    /// How many steps start in a period; `None` is as many as there are.
    pub rate: Option<Rate>,
}

impl Limit {
    /// So many at a time.
    pub const fn width(width: u32) -> Self {
        Self { width, rate: None }
    }

    /// So many starts in a period, and any number at a time.
    pub const fn rate(rate: Rate) -> Self {
        Self { width: WIDTH_MAX, rate: Some(rate) }
    }

    /// Also bounds how many start in a period. A lane of width 1 with a rate keeps its strict order.
    #[must_use]
    pub const fn and_rate(self, rate: Rate) -> Self {
        Self { rate: Some(rate), ..self }
    }

    /// Refuses a limit that lets nothing run, or more than can be counted.
    pub(crate) fn check(self, name: &str) -> Result<()> {
        let refused = |reason: String| Err(Error::InvalidLimit { name: name.to_owned(), reason });
        match self.width {
            0 => refused(
                "a width of 0 lets nothing run; use 1 or more, or pause the queue or the instances"
                    .to_owned(),
            ),
            1..=WIDTH_MAX => match self.rate.map(Rate::check) {
                Some(Err(reason)) => refused(reason),
                _ => Ok(()),
            },
            width => refused(format!(
                "a width of {width} is more than {WIDTH_MAX}; leave out the lane if nothing needs to be limited"
            )),
        }
    }
}

/// So many starts of steps in a period, with a burst: a bucket that holds `burst` starts and is filled at this rate. In any
/// stretch of time no more start than the bucket holds and is filled with meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rate {
    /// How many in each period: from 1 to [`RATE_MAX`].
    pub count: u32,
    /// The period: from a millisecond to 366 days.
    pub period: Duration,
    /// How many may start together after a rest: from 1, which spaces all starts evenly, to [`RATE_MAX`].
    pub burst: u32,
}

impl Rate {
    /// So many in each period, evenly spaced.
    pub const fn new(count: u32, period: Duration) -> Self {
        Self { count, period, burst: 1 }
    }

    /// So many in each second, evenly spaced.
    pub const fn per_second(count: u32) -> Self {
        Self::new(count, Duration::from_secs(1))
    }

    /// So many in each minute, evenly spaced.
    pub const fn per_minute(count: u32) -> Self {
        Self::new(count, Duration::from_secs(60))
    }

    /// Lets so many start together after a rest.
    #[must_use]
    pub const fn burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }

    fn check(self) -> std::result::Result<(), String> {
        let Self { count, period, burst } = self;
        let (shortest, longest) = PERIODS;
        if count == 0 {
            return Err("a rate of 0 lets nothing start; use 1 or more, or a longer period".to_owned());
        }
        if count > RATE_MAX {
            return Err(format!(
                "a rate of {count} is more than {RATE_MAX} in a period; use a shorter period"
            ));
        }
        if period < shortest || period > longest {
            return Err(format!("a period of {period:?} is not between 1ms and 366 days"));
        }
        if burst == 0 {
            return Err("a burst of 0 lets nothing start; use 1 or more".to_owned());
        }
        if burst > RATE_MAX {
            return Err(format!("a burst of {burst} is more than {RATE_MAX}"));
        }
        let fills = Duration::from_nanos(self.interval_ns() as u64).checked_mul(burst);
        if fills.is_none_or(|fills| fills > FILLS_MAX) {
            return Err(format!("a burst of {burst} takes more than 10 years to fill; use a smaller one"));
        }
        Ok(())
    }

    /// How long the bucket takes to be filled with one start, rounded up: never more than the rate.
    pub(crate) fn interval_ns(self) -> i64 {
        let ns = self.period.as_nanos().div_ceil(u128::from(self.count.max(1)));
        i64::try_from(ns).unwrap_or(i64::MAX)
    }
}

/// Refuses a cost that no burst holds.
pub(crate) fn check_cost(cost: u32) -> Result<()> {
    if (1..=RATE_MAX).contains(&cost) {
        return Ok(());
    }
    let reason = format!("a cost of {cost} is not between 1 and {RATE_MAX}");
    Err(Error::InvalidLimit { name: "cost".to_owned(), reason })
}

/// What an outcome does to its instance's lane: see [`Outcome::lane`](crate::Outcome::lane).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneChange {
    /// Goes to this lane, to the end of its line.
    To(String),
    /// Leaves its lane, and is in none.
    Leave,
}

impl LaneChange {
    /// The lane that it leads to.
    pub fn lane(&self) -> Option<&str> {
        match self {
            Self::To(lane) => Some(lane),
            Self::Leave => None,
        }
    }
}

/// Refuses a name that no lane can have.
pub(crate) fn check_limit_name(name: &str) -> Result<()> {
    check_name("limit", name)
}

/// The family of a lane: the part before its first `/`, or all of it.
pub(crate) fn family(lane: &str) -> &str {
    lane.split_once('/').map_or(lane, |(family, _)| family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lanes_family_is_what_stands_before_its_first_slash() {
        for (lane, of) in
            [("partner/acme", "partner"), ("partner/acme/eu", "partner"), ("partner", "partner")]
        {
            assert_eq!(family(lane), of);
        }
        assert_eq!(family("partner/"), "partner");
        assert_eq!(family("/acme"), "");
    }

    #[test]
    fn a_width_is_at_least_one_and_bounded() {
        for width in [1, 3, WIDTH_MAX] {
            Limit::width(width).check("partner").expect("a width");
        }
        for (width, told) in [(0, "lets nothing run"), (WIDTH_MAX + 1, "more than 10000")] {
            let refused = Limit::width(width).check("partner").expect_err("no width").to_string();
            assert!(refused.contains(told) && refused.contains("\"partner\""), "{refused}");
        }
    }

    #[test]
    fn a_rate_is_positive_and_bounded() {
        let second = Duration::from_secs(1);
        for rate in [Rate::per_second(1), Rate::per_minute(RATE_MAX).burst(RATE_MAX), Rate::new(1, PERIODS.1)]
        {
            Limit::rate(rate).check("stripe").expect("a rate");
        }
        for (rate, told) in [
            (Rate::per_second(0), "a rate of 0"),
            (Rate::per_second(RATE_MAX + 1), "more than 1000000"),
            (Rate::new(1, Duration::ZERO), "a period of 0ns"),
            (Rate::new(1, PERIODS.1 + second), "366 days"),
            (Rate::per_second(1).burst(0), "a burst of 0"),
            (Rate::per_second(1).burst(RATE_MAX + 1), "a burst of 1000001"),
            (Rate::new(1, PERIODS.1).burst(RATE_MAX), "10 years"),
        ] {
            let refused = Limit::rate(rate).check("stripe").expect_err("no rate").to_string();
            assert!(refused.contains(told) && refused.contains("\"stripe\""), "{refused}");
        }
    }

    #[test]
    fn the_time_for_one_start_is_rounded_up() {
        assert_eq!(Rate::per_second(3).interval_ns(), 333_333_334);
        assert_eq!(Rate::per_second(1000).interval_ns(), 1_000_000);
        assert_eq!(Rate::new(RATE_MAX, Duration::from_millis(1)).interval_ns(), 1);
    }
}
