//! Counters: those of the shop itself, and those of the engine, through the `metrics` facade.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Rates are taken over this long.
const WINDOW: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Meter {
    shipped: AtomicU64,
    signals: AtomicU64,
    duplicates: AtomicU64,
    commits: Arc<AtomicU64>,
    reaped: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) shipped: u64,
    pub(super) commits: u64,
    pub(super) signals: u64,
    pub(super) duplicates: u64,
    pub(super) reaped: u64,
}

impl Meter {
    /// Creates a meter that receives the metrics of every engine in this process.
    pub(super) fn install() -> Arc<Self> {
        let meter = Arc::new(Self::default());
        let counters = EngineCounters { commits: meter.commits.clone(), reaped: meter.reaped.clone() };
        metrics::set_global_recorder(counters).expect("this process has no other recorder");
        meter
    }

    pub(super) fn shipped(&self) {
        self.shipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn signal_sent(&self) {
        self.signals.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn duplicate_refused(&self) {
        self.duplicates.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            shipped: read(&self.shipped),
            commits: read(&self.commits),
            signals: read(&self.signals),
            duplicates: read(&self.duplicates),
            reaped: read(&self.reaped),
        }
    }
}

/// Counts of the last few seconds.
#[derive(Default)]
pub(super) struct Window {
    samples: VecDeque<(Instant, Counts)>,
}

impl Window {
    pub(super) fn add(&mut self, counts: Counts) {
        let now = Instant::now();
        self.samples.push_back((now, counts));
        while self.samples.front().is_some_and(|(at, _)| now - *at > WINDOW) {
            self.samples.pop_front();
        }
    }

    /// How much one of the counts grew in a second, on average.
    pub(super) fn per_second(&self, pick: fn(&Counts) -> u64) -> f64 {
        match (self.samples.front(), self.samples.back()) {
            (Some((from, old)), Some((to, new))) if to > from => {
                (pick(new) - pick(old)) as f64 / (*to - *from).as_secs_f64()
            }
            _ => 0.0,
        }
    }
}

struct EngineCounters {
    commits: Arc<AtomicU64>,
    reaped: Arc<AtomicU64>,
}

impl Recorder for EngineCounters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() {
            "dormouse_commits_total" => Counter::from_arc(self.commits.clone()),
            "dormouse_reaped_total" => Counter::from_arc(self.reaped.clone()),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
