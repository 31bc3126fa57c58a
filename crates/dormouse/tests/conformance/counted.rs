//! A recorder of metrics that a test reads.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// What was counted, by name and labels. Its recorder is the thread's, so its tests run on one.
#[derive(Clone, Default)]
pub struct Counted(pub Arc<Mutex<BTreeMap<String, f64>>>);

impl Counted {
    /// All that was counted of a metric, with these words among its labels.
    pub fn of(&self, name: &str, labels: &[&str]) -> f64 {
        let counted = self.0.lock().expect("no panic");
        let is_meant = |key: &str| {
            let (own, others) = key.split_once(' ').expect("a name and labels");
            own == name && labels.iter().all(|label| others.split(' ').any(|other| other == *label))
        };
        counted.iter().filter(|(key, _)| is_meant(key)).map(|(_, value)| value).sum()
    }

    fn one(&self, key: &Key) -> Arc<One> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(One { key: format!("{} {}", key.name(), labels.join(" ")), all: self.clone() })
    }
}

struct One {
    key: String,
    all: Counted,
}

impl One {
    fn change(&self, change: impl FnOnce(&mut f64)) {
        change(self.all.0.lock().expect("no panic").entry(self.key.clone()).or_default());
    }
}

impl CounterFn for One {
    fn increment(&self, by: u64) {
        self.change(|count| *count += by as f64);
    }
    fn absolute(&self, value: u64) {
        self.change(|count| *count = value as f64);
    }
}

impl GaugeFn for One {
    fn increment(&self, by: f64) {
        self.change(|value| *value += by);
    }
    fn decrement(&self, by: f64) {
        self.change(|value| *value -= by);
    }
    fn set(&self, to: f64) {
        self.change(|value| *value = to);
    }
}

impl HistogramFn for One {
    /// How many were recorded.
    fn record(&self, _: f64) {
        self.change(|count| *count += 1.0);
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}
