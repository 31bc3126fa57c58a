//! How many sends a transport lets out now, and what becomes of its breaker.
//!
//! This is not about an instance: the head is the transport's. PostgreSQL has the same in `transport.sql`, under the lock of
//! the transport's row; the conformance suite holds both against the same sentences.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::{later, micros};
use crate::words::words;
use crate::{Breaker, SendRate, TransportLimits};

/// A clock that goes back by more than this was turned back. Less is two statements that overtook each other.
const STEP_BACK: Duration = Duration::from_secs(1);

words! {
    /// What a transport's sends wait for.
    Held: "reason that sends wait" {
        /// The transport's rate: there is no place in its bucket.
        Rate => "rate",
        /// As many as may be are sent and not answered.
        InFlight => "in_flight",
        /// The transport's breaker is open, or a probe is under way.
        Breaker => "breaker",
        /// Another sender is just taking what this transport sends.
        Busy => "busy",
    }
}

words! {
    /// The state of a transport's breaker.
    BreakerStatus: "state of a breaker" {
        /// It lets sends through.
        Closed => "closed",
        /// It lets none through.
        Open => "open",
        /// It lets one through, as a probe.
        HalfOpen => "half_open",
    }
}

/// A transport without its name: what limits it, and how much of that is used.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TransportHead {
    pub(crate) limits: TransportLimits,
    /// How full the bucket was at `spent_at`: a send adds the period in microseconds, and each microsecond takes the rate's
    /// count off.
    pub(crate) spent: i64,
    pub(crate) spent_at: Option<Timestamp>,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// How often the breaker opened in a row.
    pub(crate) opens: u32,
    /// Counts the breaker's changes: a send that was taken before the last one says nothing about this state.
    pub(crate) epoch: i64,
    pub(crate) opened_at: Option<Timestamp>,
    pub(crate) open_until: Option<Timestamp>,
    pub(crate) probe_until: Option<Timestamp>,
    pub(crate) error: Option<String>,
    /// The namespace that was served last: the next one in order is served first.
    pub(crate) turn: String,
}

/// How many may go, and why not more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) sends: usize,
    /// Of those, how many that are not in flight yet.
    pub(crate) new: usize,
    pub(crate) held: Option<Held>,
}

/// Results of sends that were taken in one epoch of the breaker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendTally {
    /// The epoch in which they were taken.
    pub epoch: i64,
    /// Whether the other side responded to one of them.
    pub responded: bool,
    /// How many failed after that, or at all.
    pub failures: u32,
    /// How the last one failed.
    pub error: Option<String>,
}

/// What results of sends did to a transport's breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Nothing that anybody needs to know.
    Nothing,
    /// It opened.
    Opened {
        /// After so many failures in a row.
        failures: u32,
        /// Until the next probe.
        until: Timestamp,
        /// Whether a probe failed: it was open before.
        again: bool,
    },
    /// It closed.
    Closed,
    /// Another transaction holds it; try again.
    Busy,
}

impl TransportHead {
    /// Whether a sender must take it under its lock.
    pub(crate) fn is_limited(&self) -> bool {
        self.limits.rate.is_some() || self.limits.in_flight.is_some() || self.open_until.is_some()
    }

    /// Whether a response changes its breaker, so that it must be reported.
    pub(crate) fn is_watched(&self) -> bool {
        self.failures > 0 || self.open_until.is_some()
    }

    pub(crate) fn breaker_status(&self, now: Timestamp) -> BreakerStatus {
        match self.open_until {
            None => BreakerStatus::Closed,
            Some(until) if until > now => BreakerStatus::Open,
            Some(_) => BreakerStatus::HalfOpen,
        }
    }

    /// How many of those wanted may go now under a lease, while so many are in flight.
    pub(crate) fn allows(
        &mut self,
        wanted: usize,
        in_flight: usize,
        lease: Duration,
        now: Timestamp,
    ) -> Allowed {
        self.mend(now);
        self.probe_until = self.probe_until.map(|until| until.min(later(later(now, lease), STEP_BACK)));
        let mut allowed = Allowed { sends: wanted, new: wanted, held: None };
        let bound = |allowed: &mut Allowed, sends: usize, held: Held| {
            if sends < allowed.sends {
                *allowed = Allowed { sends, new: allowed.new.min(sends), held: Some(held) };
            }
        };
        if let Some(until) = self.open_until {
            let is_shut = until > now || self.probe_until.is_some_and(|until| until > now);
            bound(&mut allowed, usize::from(!is_shut), Held::Breaker);
        }
        if let Some(rate) = self.limits.rate {
            self.refill(rate, now);
            let period = micros(rate.period);
            let free = (i64::from(rate.burst) * period - self.spent).max(0) / period;
            bound(&mut allowed, free as usize, Held::Rate);
        }
        if let Some(width) = self.limits.in_flight {
            let free = (width as usize).saturating_sub(in_flight);
            if free < allowed.new {
                // What is in flight already and must be sent again needs no further place.
                allowed.new = free;
                allowed.held = Some(Held::InFlight);
            }
        }
        allowed
    }

    /// Notes that so many were taken under a lease.
    pub(crate) fn spend(&mut self, sends: usize, lease: Duration, now: Timestamp) {
        if sends == 0 {
            return;
        }
        if let Some(rate) = self.limits.rate {
            self.spent += sends as i64 * micros(rate.period);
        }
        if self.open_until.is_some() {
            self.probe_until = Some(later(now, lease));
        }
    }

    /// When what holds the next one up may let it go. `None`: when a place is free.
    pub(crate) fn until(&self, held: Held, now: Timestamp) -> Option<Timestamp> {
        match held {
            Held::Breaker => self.open_until.max(self.probe_until),
            Held::Rate => {
                let SendRate { count, period, burst } = self.limits.rate?;
                let missing = self.spent + micros(period) - i64::from(burst) * micros(period);
                let wait = missing.max(0).div_euclid(i64::from(count))
                    + i64::from(missing.max(0).rem_euclid(i64::from(count)) > 0);
                Some(later(self.spent_at.unwrap_or(now).max(now), Duration::from_micros(wait as u64)))
            }
            Held::InFlight | Held::Busy => None,
        }
    }

    /// Takes other limits on. What was sent so far still counts.
    pub(crate) fn limit(&mut self, limits: TransportLimits, now: Timestamp) {
        self.mend(now);
        if let (Some(old), Some(new)) = (self.limits.rate, limits.rate)
            && old != new
        {
            self.refill(old, now);
            let period = micros(old.period);
            let sends = self.spent.div_euclid(period) + i64::from(self.spent.rem_euclid(period) > 0);
            self.spent = sends.min(i64::from(new.burst)) * micros(new.period);
        } else if limits.rate.is_none() {
            (self.spent, self.spent_at) = (0, None);
        }
        self.limits = limits;
        if limits.breaker.is_none() {
            self.close();
        }
    }

    /// Lets sends through again. Returns whether it did not before.
    pub(crate) fn close(&mut self) -> bool {
        let was_open = self.open_until.is_some();
        if was_open || self.failures > 0 {
            self.epoch += 1;
        }
        (self.failures, self.opens, self.error) = (0, 0, None);
        (self.opened_at, self.open_until, self.probe_until) = (None, None, None);
        was_open
    }

    /// Judges the other side by results of sends.
    pub(crate) fn judge(&mut self, tally: &SendTally, now: Timestamp) -> Judged {
        let Some(breaker) = self.limits.breaker.filter(|_| tally.epoch == self.epoch) else {
            return Judged::Nothing;
        };
        let was_open = self.open_until.is_some();
        if tally.responded {
            if was_open {
                self.close();
                return Judged::Closed;
            }
            self.failures = 0;
        }
        if tally.failures == 0 {
            return Judged::Nothing;
        }
        self.failures = self.failures.saturating_add(tally.failures);
        self.error.clone_from(&tally.error);
        if !was_open && self.failures < breaker.failures {
            return Judged::Nothing;
        }
        self.opens = self.opens.saturating_add(1);
        self.epoch += 1;
        let until = later(now, open_for(&breaker, self.opens));
        self.opened_at = self.opened_at.or(Some(now));
        (self.open_until, self.probe_until) = (Some(until), None);
        Judged::Opened { failures: self.failures, until, again: was_open }
    }

    fn refill(&mut self, rate: SendRate, now: Timestamp) {
        let since = self.spent_at.unwrap_or(now);
        let passed = now.as_microsecond() - since.as_microsecond();
        // What empties the bucket, at most: a long pause does not overflow.
        let empties = self.spent / i64::from(rate.count) + 1;
        self.spent = (self.spent - passed.clamp(0, empties) * i64::from(rate.count)).max(0);
        self.spent_at = Some(since.max(now));
    }

    /// After the clock was turned back: what was counted from a later moment is counted from now. Nothing comes back to
    /// the bucket for it, and nobody waits longer than without it.
    fn mend(&mut self, now: Timestamp) {
        if self.spent_at.is_some_and(|at| at > later(now, STEP_BACK)) {
            self.spent_at = Some(now);
        }
        if let (Some(until), Some(breaker)) = (self.open_until, self.limits.breaker) {
            let longest = later(now, open_for(&breaker, self.opens));
            self.open_until = Some(until.min(later(longest, STEP_BACK)));
        }
    }
}

/// How long a breaker stays open when it has opened so often in a row.
fn open_for(breaker: &Breaker, opens: u32) -> Duration {
    breaker.open_for.saturating_mul(1 << opens.saturating_sub(1).min(30)).min(breaker.open_cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_loses_no_fraction_and_gives_none_away() {
        let rate = Some(SendRate::per_second(3).burst(1));
        let mut head = TransportHead {
            limits: TransportLimits { rate, ..TransportLimits::default() },
            ..TransportHead::default()
        };
        let (start, lease) = (Timestamp::UNIX_EPOCH, Duration::from_secs(30));
        let (mut now, mut sent) = (start, 0);
        while now.duration_since(start).as_secs() < 3_600 {
            let allowed = head.allows(10, 0, lease, now);
            assert_eq!((allowed.sends, allowed.held), (1, Some(Held::Rate)));
            head.spend(allowed.sends, lease, now);
            sent += 1;
            now = head.until(Held::Rate, now).expect("a moment");
        }
        assert_eq!(sent, 3 * 3_600, "at 0, 333334, 666667, 1000000 µs and so on");
    }

    #[test]
    fn a_breaker_grows_up_to_its_cap_and_never_overflows() {
        let breaker = Breaker::after(1).open_for(Duration::from_secs(5), Duration::from_secs(60));
        let opens = [1, 2, 3, 4, 5, 40, u32::MAX].map(|opens| open_for(&breaker, opens).as_secs());
        assert_eq!(opens, [5, 10, 20, 40, 60, 60, 60]);
    }
}
