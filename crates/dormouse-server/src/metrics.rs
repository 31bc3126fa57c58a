//! Metrics for Prometheus: those of this process, and those of the database.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dormouse::jiff::Timestamp;
use dormouse::store::{BreakerStatus, LimitView, Stats, TransportView, WorkerView};
use dormouse::{Client, Status, TroubleKind};
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit,
};

use crate::sight::Sight;

/// Upper bounds of the buckets of durations, in seconds.
const SECONDS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
/// Upper bounds of the buckets of sizes.
const SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 256.0, 1024.0];

/// Limits that have series of their own.
const LIMITS_MAX: usize = 100;

/// Collects metrics from the `metrics` facade, and renders them in the text format of Prometheus.
#[derive(Clone, Default)]
pub struct Exporter(Arc<Mutex<Series>>);

#[derive(Default)]
struct Series {
    counters: BTreeMap<Name, Arc<AtomicU64>>,
    gauges: BTreeMap<Name, Arc<AtomicU64>>,
    histograms: BTreeMap<Name, Arc<Buckets>>,
    /// What each metric is, as the code that records it says.
    help: BTreeMap<String, String>,
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
                family(text, &name.metric, kind, series.help.get(&name.metric).map(String::as_str));
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

    fn describe(&self, name: &KeyName, help: &str) {
        self.lock().help.insert(name.as_str().to_owned(), help.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, Series> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

impl Recorder for Exporter {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

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

/// The most values of one label. What is left out stands under `other`, so that what users name cannot make a server's
/// metrics grow without end.
const VALUES_MAX: usize = 100;

/// The metrics of the database for this client's namespace.
pub(crate) async fn gauges(client: &Client) -> dormouse::Result<String> {
    let namespace = client.namespace();
    let store = client.store();
    let stats = store.stats(Some(namespace.to_owned())).await?;
    let backlog = store.backlog(Some(namespace.to_owned())).await?;
    let outboxes = store.outboxes(Some(namespace.to_owned())).await?;
    let troubles = client.troubles().await?;
    let now = client.store().about().await?.now;
    let age = |at: Timestamp| now.duration_since(at).as_secs_f64().max(0.0);
    let mut text = instances(&stats);
    let mut gauge = |name: &str, help: &str, label: &str, values: Vec<(&str, f64)>, add: Add| {
        family(&mut text, name, "gauge", Some(help));
        for (value, number) in bounded(values, add) {
            line(&mut text, name, &labels(&[(label, &value)]), number);
        }
    };
    let queues = backlog.queues.iter().map(|queue| (&*queue.name, queue.runnable as f64));
    gauge("dormouse_queue_runnable", "Runnable instances, by queue", "queue", queues.collect(), Add::Sum);
    let queues =
        backlog.queues.iter().filter_map(|queue| Some((&*queue.name, age(queue.oldest_runnable_at?))));
    let help = "Age of the oldest instance that could be claimed, by queue";
    gauge("dormouse_queue_oldest_runnable_seconds", help, "queue", queues.collect(), Add::Most);
    let names: Vec<String> = backlog.awaiting.iter().map(|awaited| awaited.names.join(",")).collect();
    let awaiting = || names.iter().map(String::as_str).zip(&backlog.awaiting);
    let counts = awaiting().map(|(names, awaited)| (names, awaited.count as f64));
    let help = "Instances parked on signals, by the set of names, counted up to 10000";
    gauge("dormouse_awaiting", help, "signals", counts.collect(), Add::Sum);
    let ages = awaiting().map(|(names, awaited)| (names, age(awaited.since)));
    let help = "How long the instance that has waited longest is parked, by the set of names";
    gauge("dormouse_awaiting_oldest_seconds", help, "signals", ages.collect(), Add::Most);
    let counts = outboxes.iter().map(|outbox| (&*outbox.transport, outbox.count as f64));
    let help = "Requests that are still to be sent, by transport, counted up to 1000";
    gauge("dormouse_unsent", help, "transport", counts.collect(), Add::Sum);
    let counts = outboxes.iter().map(|outbox| (&*outbox.transport, outbox.failing as f64));
    let help = "Requests that could not be sent and are tried again, by transport, counted up to 1000";
    gauge("dormouse_unsent_failing", help, "transport", counts.collect(), Add::Sum);
    let ages = outboxes.iter().map(|outbox| (&*outbox.transport, age(outbox.oldest_at)));
    let help = "Age of the oldest request that is still to be sent, by transport";
    gauge("dormouse_unsent_oldest_seconds", help, "transport", ages.collect(), Add::Most);
    let count = |kind| troubles.iter().filter(|trouble| trouble.kind == kind).count() as f64;
    let kinds = TroubleKind::ALL.into_iter().map(|kind| (kind.as_str(), count(kind)));
    let help = "What keeps many instances from moving, by kind; `doctor` says what to do";
    gauge("dormouse_troubles", help, "kind", kinds.collect(), Add::Sum);
    let serves = |worker: &&WorkerView| worker.lease_until >= now && worker.namespaces.contains(namespace);
    limits(&mut text, client).await?;
    transports(&mut text, client).await?;
    let kept = client.count_kept().await?;
    family(&mut text, "dormouse_kept_signals", "gauge", Some("Signals that are kept for instances to come"));
    line(&mut text, "dormouse_kept_signals", "", kept.signals);
    family(
        &mut text,
        "dormouse_kept_bytes",
        "gauge",
        Some("Bytes of payloads that are kept for instances to come"),
    );
    line(&mut text, "dormouse_kept_bytes", "", kept.bytes);
    family(&mut text, "dormouse_workers", "gauge", Some("Live workers that serve this namespace"));
    line(&mut text, "dormouse_workers", "", stats.workers.iter().filter(serves).count());
    Ok(text)
}

/// How much of each limit is in use, by its name: of a family, all its lanes together. The first names only, so that the
/// number of series is bounded.
async fn limits(text: &mut String, client: &Client) -> dormouse::Result<()> {
    let limits = client.store().limits(client.namespace().to_owned(), None, LIMITS_MAX).await?;
    let mut gauge = |metric: &str, help: &str, value: fn(&LimitView) -> u64| {
        family(text, metric, "gauge", Some(help));
        for limit in &limits {
            line(text, metric, &labels(&[("limit", &limit.name)]), value(limit));
        }
    };
    gauge("dormouse_limit_width", "How many may run at a time, by limit", |limit| limit.limit.width.into());
    gauge("dormouse_limit_held", "Places that are held, by limit", |limit| limit.held);
    gauge("dormouse_limit_waiting", "Instances that wait for a place, by limit", |limit| limit.waiting);
    Ok(())
}

/// What limits each transport, and how much of that is in use. They are of all namespaces.
async fn transports(text: &mut String, client: &Client) -> dormouse::Result<()> {
    let transports = client.store().transports(None, LIMITS_MAX).await?;
    let mut gauge = |metric: &str, help: &str, value: fn(&TransportView) -> u64| {
        family(text, metric, "gauge", Some(help));
        for transport in &transports {
            line(text, metric, &labels(&[("transport", &transport.name)]), value(transport));
        }
    };
    let is_open = |transport: &TransportView| u64::from(transport.breaker.status != BreakerStatus::Closed);
    gauge("dormouse_transport_open", "Whether its breaker is open or half open, by transport", is_open);
    let help = "Failed sends in a row, by transport";
    gauge("dormouse_transport_failures", help, |transport| transport.breaker.failures.into());
    let help = "Requests that are being sent or not answered, by transport, counted up to 10000";
    gauge("dormouse_transport_in_flight", help, |transport| transport.in_flight);
    Ok(())
}

fn instances(stats: &Stats) -> String {
    let mut text = String::new();
    let mut by_status: BTreeMap<(&str, Status), u64> = BTreeMap::new();
    let mut machines: Vec<(&str, f64)> = Vec::new();
    for row in &stats.instances {
        match machines.last_mut() {
            Some((machine, count)) if *machine == row.machine => *count += row.count as f64,
            _ => machines.push((&row.machine, row.count as f64)),
        }
    }
    let named: Vec<_> = bounded(machines, Add::Sum).into_iter().map(|(machine, _)| machine).collect();
    for row in &stats.instances {
        let machine = if named.contains(&row.machine) { &*row.machine } else { OTHER };
        *by_status.entry((machine, row.status)).or_default() += row.count;
    }
    family(&mut text, "dormouse_instances", "gauge", Some("Instances, by machine and status"));
    for ((machine, status), count) in by_status {
        let labels = labels(&[("machine", machine), ("status", status.as_str())]);
        line(&mut text, "dormouse_instances", &labels, count);
    }
    text
}

const OTHER: &str = "other";

/// How values that are left out are added up.
#[derive(Clone, Copy)]
enum Add {
    Sum,
    Most,
}

/// Values of one label with their numbers: the largest ones, and the others together.
fn bounded(mut values: Vec<(&str, f64)>, add: Add) -> Vec<(String, f64)> {
    let mut rest = Vec::new();
    if values.len() > VALUES_MAX {
        values.sort_by(|one, other| other.1.total_cmp(&one.1));
        rest = values.split_off(VALUES_MAX);
        values.sort_by_key(|(value, _)| *value);
    }
    let other = match add {
        Add::Sum => rest.iter().map(|(_, number)| number).sum(),
        Add::Most => rest.iter().map(|(_, number)| *number).fold(0.0, f64::max),
    };
    let other = (!rest.is_empty()).then(|| (OTHER.to_owned(), other));
    values.into_iter().map(|(value, number)| (value.to_owned(), number)).chain(other).collect()
}

/// The head of a metric. One that nobody described is described by its name.
fn family(text: &mut String, metric: &str, kind: &str, help: Option<&str>) {
    let help = help.map_or_else(|| metric.replace('_', " "), str::to_owned);
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = writeln!(text, "# HELP {metric} {help}\n# TYPE {metric} {kind}");
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
            metrics::describe_counter!("things_total", "How many\nthings");
            metrics::counter!("things_total", "kind" => "a\"b").increment(3);
            metrics::histogram!("work_seconds").record(0.002);
            metrics::histogram!("work_seconds").record(99.0);
        });
        let text = exporter.render(&Sight::All);
        for expected in [
            "# HELP things_total How many\\nthings\n# TYPE things_total counter\nthings_total{kind=\"a\\\"b\"} 3\n",
            "# HELP work_seconds work seconds\n# TYPE work_seconds histogram\n",
            "work_seconds_bucket{le=\"0.001\"} 0\nwork_seconds_bucket{le=\"0.0025\"} 1\n",
            "work_seconds_bucket{le=\"+Inf\"} 2\nwork_seconds_sum 99.002\nwork_seconds_count 2\n",
        ] {
            assert!(text.contains(expected), "{expected}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_label_has_a_hundred_values_and_the_others_stand_together() {
        let names: Vec<String> = (0..150).map(|n| format!("signal-{n:03}")).collect();
        let values = || names.iter().enumerate().map(|(n, name)| (name.as_str(), n as f64)).collect();
        let sums = bounded(values(), Add::Sum);
        assert_eq!((sums.len(), &sums[0].0[..]), (101, "signal-050"));
        assert_eq!(sums[100], ("other".to_owned(), (0..50).sum::<u32>().into()));
        assert_eq!(bounded(values(), Add::Most)[100], ("other".to_owned(), 49.0));
        assert_eq!(bounded(vec![("a", 1.0)], Add::Sum), [("a".to_owned(), 1.0)]);
    }
}
