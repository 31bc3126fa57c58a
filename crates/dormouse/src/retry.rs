//! Retry policies: how long to wait before the next try, and when to give up.

use std::time::Duration;

use crate::StepError;

/// Capped exponential backoff with jitter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    tries_max: u32,
    base: Duration,
    cap: Duration,
}

impl Retry {
    /// Gives up at the first error.
    pub const fn never() -> Self {
        Self { tries_max: 1, base: Duration::ZERO, cap: Duration::ZERO }
    }

    /// Tries `tries_max` times in all, waiting about 1 s, 2 s, 4 s … up to 10 minutes between them.
    pub const fn times(tries_max: u32) -> Self {
        Self { tries_max, base: Duration::from_secs(1), cap: Duration::from_secs(600) }
    }

    /// Sets the wait before the second try and the longest wait.
    #[must_use]
    pub const fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.base = base;
        self.cap = cap;
        self
    }

    /// The same as [`Retry::delay`], but gives up at once after an error that is final: see [`crate::Final`].
    pub fn delay_after(&self, error: &StepError, attempt: u32) -> Option<Duration> {
        if error.is_final() { None } else { self.delay(attempt) }
    }

    /// How long to wait after try number `attempt` (the first is 0) failed; `None` gives up.
    ///
    /// The wait is drawn from the upper half of the exponential step, so that many instances that
    /// failed together do not come back together.
    pub fn delay(&self, attempt: u32) -> Option<Duration> {
        if attempt.saturating_add(1) >= self.tries_max {
            return None;
        }
        let full = self.base.saturating_mul(1_u32.checked_shl(attempt).unwrap_or(u32::MAX)).min(self.cap);
        Some(full.mul_f64(0.5 + fastrand::f64() / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_cap_and_end() {
        let retry = Retry::times(5).backoff(Duration::from_secs(1), Duration::from_secs(3));
        for (attempt, full_s) in [(0, 1), (1, 2), (2, 3), (3, 3)] {
            let delay = retry.delay(attempt).expect("a further try");
            assert!(delay >= Duration::from_millis(full_s * 500) && delay <= Duration::from_secs(full_s));
        }
        assert_eq!(retry.delay(4), None);
        assert_eq!(Retry::never().delay(0), None);
    }

    #[test]
    fn no_attempt_overflows() {
        assert!(Retry::times(u32::MAX).delay(10_000).expect("a further try") <= Duration::from_secs(600));
    }
}
