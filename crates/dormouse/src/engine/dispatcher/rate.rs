//! How fast a dispatcher may send.

use std::time::Duration;

use tokio::time::Instant;

/// A bucket of sends that fills with time, up to a second's worth.
pub(super) struct Rate {
    per_second_max: Option<u32>,
    left: f64,
    at: Instant,
}

impl Rate {
    pub(super) fn new(per_second_max: Option<u32>) -> Self {
        Self { per_second_max, left: 1.0, at: Instant::now() }
    }

    /// Waits until at least one may be sent, and returns how many of those wanted may.
    pub(super) async fn wait(&mut self, wanted: usize) -> usize {
        loop {
            match self.allows(wanted, Instant::now()) {
                Ok(allowed) => return allowed,
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
    }

    /// How many of those wanted may be sent now, or how long it is until one may.
    fn allows(&mut self, wanted: usize, now: Instant) -> std::result::Result<usize, Duration> {
        let Some(per_second) = self.per_second_max.map(f64::from) else { return Ok(wanted) };
        let filled = (now - self.at).as_secs_f64() * per_second;
        self.left = (self.left + filled).min(per_second);
        self.at = now;
        if self.left >= 1.0 {
            return Ok(wanted.min(self.left as usize));
        }
        Err(Duration::from_secs_f64((1.0 - self.left) / per_second))
    }

    pub(super) fn spend(&mut self, sends: usize) {
        if self.per_second_max.is_some() {
            self.left -= sends as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_sent_in_a_second_than_is_allowed() {
        let mut rate = Rate::new(Some(10));
        let started = rate.at;
        let (mut now, mut sent) = (started, 0);
        while sent < 100 {
            match rate.allows(64, now) {
                Ok(allowed) => {
                    rate.spend(allowed);
                    sent += allowed;
                }
                Err(wait) => now += wait + Duration::from_millis(1),
            }
        }
        assert!(now - started >= Duration::from_millis(9_800), "{:?}", now - started);
        assert_eq!(rate.allows(64, now + Duration::from_secs(60)), Ok(10), "a second's worth, after a pause");
        assert_eq!(Rate::new(None).allows(64, now), Ok(64));
    }
}
