//! Time comes in: the system's, or one that a test moves.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// The time that the SQLite store stamps and compares with.
pub trait Clock: Send + Sync + 'static {
    /// The moment it is.
    fn now(&self) -> Timestamp;

    /// Resolves once it is this moment.
    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let left = Duration::try_from(at.duration_since(self.now())).unwrap_or_default();
        Box::pin(tokio::time::sleep(left))
    }
}

/// A clock that stands still until it is moved, for tests.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    now: Arc<watch::Sender<Timestamp>>,
    moving: Arc<Mutex<()>>,
}

impl VirtualClock {
    /// A clock that stands at `start`.
    pub fn new(start: Timestamp) -> Self {
        Self { now: Arc::new(watch::Sender::new(start)), moving: Arc::default() }
    }

    /// Moves the clock; sleepers whose time has come wake up.
    pub fn advance(&self, duration: Duration) {
        self.set(later(self.now(), duration));
    }

    /// Moves the clock to a moment, backwards too.
    pub fn set(&self, to: Timestamp) {
        let _one_at_a_time = self.moving.lock().expect("the clock's lock is never poisoned");
        self.now.send_replace(to);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        *self.now.borrow()
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut now = self.now.subscribe();
        Box::pin(async move {
            // The sender lives as long as `self`, so the channel cannot close while we wait.
            let _ = now.wait_for(|now| *now >= at).await;
        })
    }
}

/// The latest moment that anything can be scheduled for: the last full second that can be represented.
const END_OF_TIME_S: i64 = 253_402_207_200;

/// `at + duration`, held at the end of time instead of overflowing.
pub(crate) fn later(at: Timestamp, duration: Duration) -> Timestamp {
    let later = SignedDuration::try_from(duration).ok().and_then(|duration| at.checked_add(duration).ok());
    storable(later.unwrap_or(Timestamp::MAX))
}

/// Longer than any delay that ends before time does.
const DELAY_US_MAX: i64 = 8_000 * 365 * 86_400 * 1_000_000;

/// A duration in microseconds, as every store keeps it.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX).min(DELAY_US_MAX)
}

/// A moment as every store can keep it: in microseconds, between 1970 and the end of time.
fn storable(at: Timestamp) -> Timestamp {
    let us = at.as_microsecond().clamp(0, END_OF_TIME_S * 1_000_000);
    Timestamp::from_microsecond(us).expect("it is between two moments")
}

/// A moment: absolute, or counted from the store's present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// At this moment.
    At(Timestamp),
    /// This long after the commit.
    In(Duration),
}

impl When {
    /// The moment meant, seen from `now`.
    pub(crate) fn moment(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => storable(at),
            Self::In(duration) => later(now, duration),
        }
    }
}

impl From<Timestamp> for When {
    fn from(at: Timestamp) -> Self {
        Self::At(at)
    }
}

impl From<Duration> for When {
    fn from(duration: Duration) -> Self {
        Self::In(duration)
    }
}
