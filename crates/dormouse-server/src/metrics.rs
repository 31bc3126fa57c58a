//! Metrics for Prometheus: those of this process, and those of the database.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dormouse::{Client, Status};
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit,
};

use crate::sight::Sight;

/// Upper bounds of the buckets of durations, in seconds.
const SECONDS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
/// Upper bounds of the buckets of sizes.
const SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 256.0, 1024.0];

/// Collects metrics from the `metrics` facade, and renders them in the text format of Prometheus.
#[derive(Clone, Default)]
pub struct Exporter(Arc<Mutex<Series>>);

#[derive(Default)]
struct Series {
    counters: BTreeMap<Name, Arc<AtomicU64>>,
    gauges: BTreeMap<Name, Arc<AtomicU64>>,
    histograms: BTreeMap<Name, Arc<Buckets>>,
}

/// A metric and its labels, written out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    metric: String,
    labels: String,
    /// The machine that the labels name.
    machine: Option<String>,
}

impl Exporter {
    /// Installs an exporter as the metrics recorder of this process. A process can have only one recorder: returns
    /// `None` if there is another one.
    pub fn install() -> Option<Self> {
        let exporter = Self::default();
        metrics::set_global_recorder(exporter.clone()).ok()?;
        Some(exporter)
    }

    /// The metrics, except those of machines that the caller may not see.
    pub(crate) fn render(&self, sight: &Sight) -> String {
        let is_seen = |name: &Name| name.machine.as_deref().is_none_or(|machine| sight.sees(machine));
        let series = self.lock();
        let mut text = String::new();
        let mut last = String::new();
        let mut head = |text: &mut String, name: &Name, kind: &str| {
            if name.metric != last {
                let _ = writeln!(text, "# TYPE {} {kind}", name.metric);
                last.clone_from(&name.metric);
            }
        };
        for (name, counter) in series.counters.iter().filter(|(name, _)| is_seen(name)) {
            head(&mut text, name, "counter");
            line(&mut text, &name.metric, &name.labels, counter.load(Ordering::Relaxed));
        }
        for (name, gauge) in series.gauges.iter().filter(|(name, _)| is_seen(name)) {
            head(&mut text, name, "gauge");
            line(&mut text, &name.metric, &name.labels, f64::from_bits(gauge.load(Ordering::Relaxed)));
        }
        for (name, histogram) in series.histograms.iter().filter(|(name, _)| is_seen(name)) {
            head(&mut text, name, "histogram");
            histogram.render(&mut text, name);
        }
        text
    }

    fn lock(&self) -> MutexGuard<'_, Series> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

impl Recorder for Exporter {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.lock().counters.entry(name(key)).or_default().clone())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.lock().gauges.entry(name(key)).or_default().clone())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let bounds = if key.name().ends_with("_seconds") { &SECONDS[..] } else { &SIZES[..] };
        let new = || Arc::new(Buckets::new(bounds));
        Histogram::from_arc(self.lock().histograms.entry(name(key)).or_insert_with(new).clone())
    }
}

struct Buckets {
    bounds: &'static [f64],
    /// One for each bound, and one for values above all of them.
    counts: Vec<AtomicU64>,
    /// The sum, as the bits of a float.
    sum: AtomicU64,
}

impl Buckets {
    fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    fn render(&self, text: &mut String, Name { metric, labels, .. }: &Name) {
        let mut total = 0;
        let bounds = self.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&self.counts) {
            total += count.load(Ordering::Relaxed);
            let comma = if labels.is_empty() { "" } else { "," };
            line(text, &format!("{metric}_bucket"), &format!("{labels}{comma}le=\"{bound}\""), total);
        }
        line(text, &format!("{metric}_sum"), labels, f64::from_bits(self.sum.load(Ordering::Relaxed)));
        line(text, &format!("{metric}_count"), labels, total);
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |sum| Some((f64::from_bits(sum) + value).to_bits());
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// The metrics of the database for this client's namespace.
pub(crate) async fn gauges(client: &Client) -> dormouse::Result<String> {
    let namespace = client.namespace();
    let store = client.store();
    let stats = store.stats(Some(namespace.to_owned())).await?;
    let backlog = store.backlog(Some(namespace.to_owned())).await?;
    let about = client.store().about().await?;
    let age = |at: dormouse::jiff::Timestamp| about.now.duration_since(at).as_secs_f64().max(0.0);
    let mut text = String::new();
    let mut by_status: BTreeMap<(&str, Status), u64> = BTreeMap::new();
    for row in &stats.instances {
        *by_status.entry((&row.machine, row.status)).or_default() += row.count;
    }
    text += "# TYPE dormouse_instances gauge\n";
    for ((machine, status), count) in by_status {
        line(
            &mut text,
            "dormouse_instances",
            &labels(&[("machine", machine), ("status", status.as_str())]),
            count,
        );
    }
    text += "# TYPE dormouse_queue_runnable gauge\n";
    for queue in &backlog.queues {
        line(&mut text, "dormouse_queue_runnable", &labels(&[("queue", &queue.name)]), queue.runnable);
    }
    text += "# TYPE dormouse_queue_oldest_runnable_seconds gauge\n";
    for (queue, at) in backlog.queues.iter().filter_map(|queue| Some((queue, queue.oldest_runnable_at?))) {
        line(
            &mut text,
            "dormouse_queue_oldest_runnable_seconds",
            &labels(&[("queue", &queue.name)]),
            age(at),
        );
    }
    text += "# TYPE dormouse_awaiting gauge\n";
    for awaited in &backlog.awaiting {
        line(
            &mut text,
            "dormouse_awaiting",
            &labels(&[("signals", &awaited.names.join(","))]),
            awaited.count,
        );
    }
    text += "# TYPE dormouse_awaiting_oldest_seconds gauge\n";
    for awaited in &backlog.awaiting {
        let labels = labels(&[("signals", &awaited.names.join(","))]);
        line(&mut text, "dormouse_awaiting_oldest_seconds", &labels, age(awaited.since));
    }
    let serves = |worker: &&dormouse::store::WorkerView| {
        worker.lease_until >= about.now && worker.namespaces.contains(namespace)
    };
    text += "# TYPE dormouse_workers gauge\n";
    line(&mut text, "dormouse_workers", "", stats.workers.iter().filter(serves).count());
    Ok(text)
}

fn name(key: &Key) -> Name {
    let pairs: Vec<_> = key.labels().map(|label: &Label| (label.key(), label.value())).collect();
    let machine = pairs.iter().find(|(label, _)| *label == "machine").map(|(_, value)| (*value).to_owned());
    Name { metric: key.name().to_owned(), labels: labels(&pairs), machine }
}

/// Labels as text. Their values come from users, so characters that would end one are escaped.
fn labels(pairs: &[(&str, &str)]) -> String {
    let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    pairs.join(",")
}

fn line(text: &mut String, metric: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = if labels.is_empty() {
        writeln!(text, "{metric} {value}")
    } else {
        writeln!(text, "{metric}{{{labels}}} {value}")
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_told_in_the_text_format() {
        let exporter = Exporter::default();
        metrics::with_local_recorder(&exporter, || {
            metrics::counter!("things_total", "kind" => "a\"b").increment(3);
            metrics::histogram!("work_seconds").record(0.002);
            metrics::histogram!("work_seconds").record(99.0);
        });
        let text = exporter.render(&Sight::All);
        for expected in [
            "# TYPE things_total counter\nthings_total{kind=\"a\\\"b\"} 3\n",
            "work_seconds_bucket{le=\"0.001\"} 0\nwork_seconds_bucket{le=\"0.0025\"} 1\n",
            "work_seconds_bucket{le=\"+Inf\"} 2\nwork_seconds_sum 99.002\nwork_seconds_count 2\n",
        ] {
            assert!(text.contains(expected), "{expected}\nis not in\n{text}");
        }
    }
}
