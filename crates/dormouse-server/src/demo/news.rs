//! Notable events in words, slow enough to read.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// As many as the picture has lines for.
pub(super) const ITEMS_MAX: usize = 6;
/// At most one event of each kind in this time, so that a reader sees a bit of everything.
const SAME_KIND_EVERY: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Paid,
    PaidTwice,
    Unpaid,
    Approved,
    Escalated,
    Declined,
    Retried,
    Shipped,
    Trouble,
}

/// The events that were shown so far.
pub(super) struct News {
    since: Instant,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    last: HashMap<Kind, Instant>,
    latest: Latest,
}

#[derive(Clone, Default)]
pub(super) struct Latest {
    /// What was found at the start.
    pub(super) headline: String,
    /// The last few events and when they happened, oldest first.
    pub(super) items: VecDeque<(Duration, String)>,
}

impl Default for News {
    fn default() -> Self {
        Self { since: Instant::now(), told: Mutex::default() }
    }
}

impl News {
    pub(super) fn headline(&self, text: String) {
        self.lock().latest.headline = text;
    }

    pub(super) fn tell(&self, kind: Kind, text: String) {
        let now = Instant::now();
        let mut told = self.lock();
        if told.last.get(&kind).is_some_and(|last| now - *last < SAME_KIND_EVERY) {
            return;
        }
        told.last.insert(kind, now);
        told.latest.items.push_back((now - self.since, text));
        if told.latest.items.len() > ITEMS_MAX {
            told.latest.items.pop_front();
        }
    }

    pub(super) fn latest(&self) -> Latest {
        self.lock().latest.clone()
    }

    pub(super) fn up(&self) -> Duration {
        self.since.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().expect("no code panics while it holds this lock")
    }
}
