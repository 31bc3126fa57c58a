//! Paces: how often steps of a machine run and how long, and how long instances wait in a queue, over the last minutes.
//!
//! Counted from the feed, so they are those of all workers. Durations are kept in buckets, four to each doubling, so a
//! percentile is right to within a fifth, and a series takes the same memory however much happens.

use std::collections::HashMap;

use dormouse::jiff::Timestamp;
use dormouse::store::Change;
use dormouse::{EventKind, InstanceId};
use maud::{Markup, html};

/// The time span of one part of a series.
const PART_S: i64 = 30;
/// How many parts are kept, the one that grows included.
const PARTS: i64 = 10;
/// Buckets up to some 70 minutes; what is longer is in the last.
const BUCKETS: usize = 128;
/// The most machines and queues of all namespaces that are counted.
const SERIES_MAX: usize = 1_000;
/// The most instances whose last event is remembered, to tell how long they waited.
const REMEMBERED_MAX: usize = 50_000;

/// Which series: a machine's runs, or a queue's waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Of {
    Machine,
    Queue,
}

#[derive(Default)]
pub(super) struct Paces {
    series: HashMap<(Of, String, String), Series>,
    /// When instances became runnable.
    runnable: HashMap<InstanceId, Timestamp>,
}

/// Parts by the number of their span.
#[derive(Default)]
struct Series(HashMap<i64, Part>);

struct Part {
    count: u64,
    buckets: Box<[u32; BUCKETS]>,
}

/// The pace of one machine or queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    pub(super) count: u64,
    pub(super) per_s: f64,
    /// The 50th, 95th and 99th percentiles, in microseconds.
    pub(super) us: [u64; 3],
}

impl Paces {
    pub(super) fn add(&mut self, change: &Change) {
        let waited_since = self.runnable.remove(&change.instance);
        if makes_runnable(change.kind) {
            if self.runnable.len() >= REMEMBERED_MAX {
                self.runnable.clear();
            }
            self.runnable.insert(change.instance, change.at);
        }
        let Some((started_at, took_us)) = change.ran else { return };
        self.note(Of::Machine, change, &change.machine, took_us);
        if let Some(since) = waited_since {
            let waited = started_at.as_microsecond().saturating_sub(since.as_microsecond());
            self.note(Of::Queue, change, &change.queue, u64::try_from(waited).unwrap_or(0));
        }
    }

    fn note(&mut self, of: Of, change: &Change, name: &str, us: u64) {
        let key = (of, change.namespace.clone(), name.to_owned());
        if self.series.len() >= SERIES_MAX && !self.series.contains_key(&key) {
            return;
        }
        let parts = &mut self.series.entry(key).or_default().0;
        let slot = change.at.as_second() / PART_S;
        let newest = parts.keys().copied().max().unwrap_or(slot).max(slot);
        parts.retain(|at, _| *at > newest - PARTS);
        if slot > newest - PARTS {
            let part =
                parts.entry(slot).or_insert_with(|| Part { count: 0, buckets: Box::new([0; BUCKETS]) });
            part.count += 1;
            part.buckets[bucket(us)] += 1;
        }
    }

    pub(super) fn of(&self, of: Of, namespace: &str, name: &str, now: Timestamp) -> Pace {
        let Some(series) = self.series.get(&(of, namespace.to_owned(), name.to_owned())) else {
            return Pace::default();
        };
        let last = now.as_second() / PART_S;
        let parts: Vec<&Part> =
            series.0.iter().filter(|(at, _)| **at > last - PARTS).map(|(_, part)| part).collect();
        let count = parts.iter().map(|part| part.count).sum();
        let over_s = (PARTS - 1) * PART_S + now.as_second() % PART_S;
        let percentile = |share: f64| {
            let wanted = (count as f64 * share).ceil().max(1.0) as u64;
            let mut met = 0;
            let found = (0..BUCKETS).find(|bucket| {
                met += parts.iter().map(|part| u64::from(part.buckets[*bucket])).sum::<u64>();
                met >= wanted
            });
            found.map_or(0, middle)
        };
        let us = if count == 0 { [0; 3] } else { [0.5, 0.95, 0.99].map(percentile) };
        Pace { count, per_s: count as f64 / over_s as f64, us }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Whether an event leaves its instance waiting for a worker.
fn makes_runnable(kind: EventKind) -> bool {
    use EventKind::{
        ChildrenJoined, ChildrenTimeout, Created, Reaped, Retried, SignalReceived, SignalTimeout, TimerFired,
        UnitCompleted, UnitFailed, UnitTimedOut,
    };
    matches!(
        kind,
        Created
            | SignalReceived
            | SignalTimeout
            | TimerFired
            | ChildrenJoined
            | ChildrenTimeout
            | UnitCompleted
            | UnitFailed
            | UnitTimedOut
            | Retried
            | Reaped
    )
}

fn bucket(us: u64) -> usize {
    (((us.max(1) as f64).log2() * 4.0) as usize).min(BUCKETS - 1)
}

/// What stands for the durations of a bucket: the middle between its bounds.
fn middle(bucket: usize) -> u64 {
    ((bucket as f64 + 0.5) / 4.0).exp2() as u64
}

/// The cells of a pace in a table: how often, and the three percentiles.
pub(super) fn cells(pace: &Pace) -> Markup {
    html! {
        @if pace.count == 0 {
            @for _ in 0..4 { td.num { span.muted { "·" } } }
        } @else {
            td.num { (format!("{:.1}", pace.per_s)) }
            @for us in pace.us { td.num { (told(us)) } }
        }
    }
}

/// A duration with two digits or so.
pub(super) fn told(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => super::parts::span(i128::from(us / 1_000)),
    }
}

#[cfg(test)]
mod tests {
    use dormouse::Status;

    use super::*;

    fn change(instance: i64, at_us: i64, kind: EventKind, ran: Option<(i64, u64)>) -> Change {
        let moment = |us| Timestamp::from_microsecond(us).expect("a moment");
        Change {
            id: 1,
            instance: InstanceId(instance),
            namespace: "default".to_owned(),
            machine: "shop".to_owned(),
            key: None,
            queue: "orders".to_owned(),
            status: Status::Runnable,
            kind,
            seq: 1,
            step: "Start".to_owned(),
            at: moment(at_us),
            ran: ran.map(|(started, took)| (moment(started), took)),
        }
    }

    #[test]
    fn percentiles_are_right_to_within_a_fifth() {
        let mut paces = Paces::default();
        for n in 1..=1_000 {
            let ran = Some((0, n as u64 * 1_000));
            paces.add(&change(n, 1_000_000_000, EventKind::StepCompleted, ran));
        }
        let pace = paces.of(Of::Machine, "default", "shop", Timestamp::from_second(1_001).expect("a moment"));
        assert_eq!(pace.count, 1_000);
        for (told, right) in pace.us.into_iter().zip([500_000, 950_000, 990_000]) {
            assert!(told.abs_diff(right) * 5 < right, "{told} for {right}");
        }
    }

    #[test]
    fn a_wait_is_from_when_it_could_run_until_its_step_starts() {
        let mut paces = Paces::default();
        paces.add(&change(1, 1_000_000_000, EventKind::Created, None));
        paces.add(&change(1, 1_003_000_000, EventKind::StepCompleted, Some((1_002_000_000, 1_000_000))));
        // It runs ahead: it waited for nothing.
        paces.add(&change(1, 1_005_000_000, EventKind::Done, Some((1_004_000_000, 1_000_000))));
        let now = Timestamp::from_second(1_010).expect("a moment");
        let waits = paces.of(Of::Queue, "default", "orders", now);
        assert_eq!(waits.count, 1);
        assert!(waits.us[0].abs_diff(2_000_000) < 400_000, "{waits:?}");
        assert_eq!(paces.of(Of::Machine, "default", "shop", now).count, 2);
        let later = Timestamp::from_second(1_400).expect("a moment");
        assert_eq!(paces.of(Of::Machine, "default", "shop", later), Pace::default(), "five minutes later");
    }
}
