//! Ratios: figures that must not depend on how a store is used. Both sides of each are measured in one run, in turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dormouse::prelude::*;
use dormouse::store::{Namespaces, Store};
use dormouse::{Client, Engine, History, Limit, RATE_MAX, Rate, Status};
use serde::Serialize;

use super::bed::{Bed, Place};
use super::beside::{Beside, Role};
use super::load::{Sleeper, signal_batches};
use super::report::number;

/// Instances in a backlog that is drained.
const BACKLOG: u64 = 50_000;
/// How often each drain is measured; the median counts.
const ROUNDS: usize = 3;
/// Tenants of the backlog that many share.
const TENANTS: u64 = 5_000;
/// Lanes of the backlog that many share, and the width of the one that all share.
const LANES: u64 = 10_000;
const HOT: u32 = 1_000;
/// Jobs of a tenant's flood, beside which another one starts a single job; how long each takes, and in how many places.
const FLOOD: u64 = 20_000;
const FLOOD_STEP: Duration = Duration::from_millis(5);
const FLOOD_PLACES: usize = 16;
/// How many single jobs are started beside it.
const SINGLES: usize = 20;
/// Rounds of signals in batches, and signals in each.
const SIGNAL_ROUNDS: usize = 10;
const SIGNALS: u64 = 5_000;
/// Calls of another process, of each kind.
const CALLS: usize = 50;
const PATIENCE: Duration = Duration::from_secs(300);

/// A job that counts its runs.
pub(super) struct Tick(pub(super) Arc<AtomicU64>);

impl Job for Tick {
    const NAME: &'static str = "tick";
    type Input = u64;
    type Output = ();

    async fn run(&self, _input: u64, _cx: &Context) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// One line of the report.
#[derive(Serialize)]
pub(super) struct Ratio {
    name: &'static str,
    value: f64,
    /// The figures that it is computed from.
    of: Vec<f64>,
}

/// Measures all ratios that apply to the store.
pub(super) async fn measure(place: &Place, less: u64) -> Result<Vec<Ratio>, BoxError> {
    let rows = BACKLOG / less;
    let mut ratios = Vec::new();
    let mut drained = [const { Vec::new() }; 10];
    for _ in 0..ROUNDS {
        drained[0].push(drain(place, rows, 1024, Among::One).await?);
        drained[1].push(drain(place, rows, 64, Among::One).await?);
        drained[2].push(drain(place, rows, 16, Among::One).await?);
        drained[3].push(drain(place, rows, 64, Among::Namespaces).await?);
        drained[4]
            .push(drain(place, rows, 64, Among::Lanes { lanes: LANES, width: None, rate: None }).await?);
        drained[5]
            .push(drain(place, rows, 64, Among::Lanes { lanes: LANES, width: Some(3), rate: None }).await?);
        drained[6]
            .push(drain(place, rows, 64, Among::Lanes { lanes: 1, width: Some(HOT), rate: None }).await?);
        drained[7].push(drain(place, rows, 64, Among::Shares).await?);
        let rate = Some(Rate::per_second(RATE_MAX).burst(RATE_MAX));
        drained[8].push(drain(place, rows, 64, Among::Lanes { lanes: LANES, width: Some(3), rate }).await?);
        drained[9].push(drain(place, rows, 64, Among::Lanes { lanes: 1, width: Some(HOT), rate }).await?);
    }
    let [wide, usual, narrow, tenants, lanes, limited, hot, shares, rated, hot_rated] = drained.map(median);
    ratios.push(Ratio::new("drained with 64 places over 1,024", usual, wide));
    ratios.push(Ratio::new("drained with 16 places over 1,024", narrow, wide));
    ratios.push(Ratio::new("drained of 5,000 namespaces over 1", tenants, usual));
    ratios.push(Ratio::new("drained in 10,000 lanes over no lane", lanes, usual));
    ratios.push(Ratio::new("drained in 10,000 lanes of width 3 over width 1", limited, lanes));
    ratios.push(Ratio::new("drained in one lane of width 1,000 over no lane", hot, usual));
    ratios.push(Ratio::new("drained of 5,000 shares over 1", shares, usual));
    ratios.push(Ratio::new("drained in 10,000 lanes with a rate over none", rated, limited));
    ratios.push(Ratio::new("drained in one lane with a rate over none", hot_rated, hot));
    let value = beside_a_flood(place, FLOOD / less).await?;
    ratios.push(Ratio { name: "a single job beside a flood p50, ms", value, of: vec![] });
    if let Place::Server(_) = place {
        let (mut one, mut four) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            one.push(drain_beside(place, rows, 1).await?);
            four.push(drain_beside(place, rows, 4).await?);
        }
        ratios.push(Ratio::new("drained by 4 processes of 64 places over 1", median(four), median(one)));
    }
    ratios.push(rounds_of_signals(place, SIGNALS / less).await?);
    if let Place::Directory(_) = place {
        let (start, signal) = elsewhere(place).await?;
        ratios.push(Ratio { name: "a start by another process p50, ms", value: start, of: vec![] });
        ratios.push(Ratio { name: "a signal by another process p50, ms", value: signal, of: vec![] });
    }
    let value = idle(place).await?;
    ratios.push(Ratio { name: "an idle engine, % of a core", value, of: vec![] });
    Ok(ratios)
}

impl Ratio {
    fn new(name: &'static str, over: f64, under: f64) -> Self {
        Self { name, value: over / under, of: vec![over, under] }
    }
}

pub(super) fn table(store: &str, ratios: &[Ratio]) {
    println!("\n{store}");
    for Ratio { name, value, of } in ratios {
        let of: Vec<_> = of.iter().map(|value| number(*value)).collect();
        let of = if of.is_empty() { String::new() } else { format!("   ({} /s)", of.join(" and ")) };
        println!("{name:<46}{value:>8.2}{of}");
    }
}

/// What a backlog is spread over.
#[derive(Clone, Copy)]
enum Among {
    One,
    Namespaces,
    Shares,
    /// With a limit of this width for their family, or none.
    Lanes {
        lanes: u64,
        width: Option<u32>,
        /// A rate of that limit which is never reached.
        rate: Option<Rate>,
    },
}

/// How many jobs per second an engine drains from a backlog that is spread over something.
async fn drain(place: &Place, rows: u64, places: usize, among: Among) -> Result<f64, BoxError> {
    let bed = place.bed(&format!("drain-{:08x}.db", fastrand::u32(..))).await?;
    insert(&bed.store, rows, among).await?;
    let ran = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let engine = Engine::on(bed.store.clone())
        .job(Tick(ran.clone()))
        .queue("default", places)
        .namespaces(Namespaces::All)
        .start()
        .await?;
    while ran.load(Ordering::Relaxed) < rows {
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(started.elapsed() < PATIENCE, "the backlog is not drained");
    }
    // Jobs that have run are committed before it stops.
    engine.shutdown().await;
    let per_s = rows as f64 / started.elapsed().as_secs_f64();
    bed.strip().await?;
    Ok(per_s)
}

/// The same by processes of 64 places each.
async fn drain_beside(place: &Place, rows: u64, processes: usize) -> Result<f64, BoxError> {
    let bed = place.bed("beside.db").await?;
    insert(&bed.store, rows, Among::One).await?;
    let start = |_| Beside::start(Role::Work, &bed.url());
    let mut workers = (0..processes).map(start).collect::<Result<Vec<_>, _>>()?;
    let started = Instant::now();
    for worker in &mut workers {
        worker.tell("work")?;
    }
    while bed.store.stats(None).await?.count(Status::Done) < rows {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(started.elapsed() < PATIENCE, "the backlog is not drained");
    }
    let per_s = rows as f64 / started.elapsed().as_secs_f64();
    drop(workers);
    bed.strip().await?;
    Ok(per_s)
}

async fn insert(store: &Arc<dyn Store>, rows: u64, among: Among) -> Result<(), BoxError> {
    if let Among::Lanes { width: Some(width), rate, .. } = among {
        let limit = Limit::width(width);
        let limit = rate.map_or(limit, |rate| limit.and_rate(rate));
        Client::on(store.clone()).set_limit("partner", limit).await?;
    }
    let new = |row: u64| {
        let mut new = NewInstance::job::<Tick>(row);
        let tenant = || format!("tenant-{:05}", row % TENANTS);
        match among {
            Among::One => {}
            Among::Namespaces => new.namespace = tenant(),
            Among::Shares => new.share = Some(tenant()),
            Among::Lanes { lanes, .. } => new.lane = Some(format!("partner/{:05}", row % lanes)),
        }
        new
    };
    for first in (0..rows).step_by(1_000) {
        store.insert((first..rows.min(first + 1_000)).map(new).collect()).await?;
    }
    Ok(())
}

/// A job that takes a while.
struct Nap;

impl Job for Nap {
    const NAME: &'static str = "nap";
    type Input = u64;
    type Output = ();

    async fn run(&self, _input: u64, _cx: &Context) -> Result<(), BoxError> {
        tokio::time::sleep(FLOOD_STEP).await;
        Ok(())
    }
}

/// How long a single job of one tenant takes beside the flood of another one, in milliseconds.
async fn beside_a_flood(place: &Place, rows: u64) -> Result<f64, BoxError> {
    let bed = place.bed("flood.db").await?;
    for first in (0..rows).step_by(1_000) {
        let flood = (first..rows.min(first + 1_000)).map(|row| NewInstance::job::<Nap>(row).share("flood"));
        bed.store.insert(flood.collect()).await?;
    }
    let engine = Engine::on(bed.store.clone()).job(Nap).queue("default", FLOOD_PLACES).start().await?;
    let client = engine.client();
    let mut took = Vec::new();
    for _ in 0..SINGLES {
        tokio::time::sleep(FLOOD_STEP * 4).await;
        let called = Instant::now();
        let id = client.start_job::<Nap>(0).share("single").await?;
        until(&client, &id.to_string(), Status::Done).await?;
        took.push(called.elapsed().as_secs_f64() * 1000.0);
    }
    drop(client);
    engine.shutdown().await;
    bed.strip().await?;
    Ok(median(took))
}

/// The slowest round of signals in batches over the median one.
async fn rounds_of_signals(place: &Place, signals: u64) -> Result<Ratio, BoxError> {
    let bed = place.bed("signals.db").await?;
    let engine = sleepers(&bed, History::On).await?;
    let mut rounds = Vec::new();
    for _ in 0..SIGNAL_ROUNDS {
        rounds.push(signal_batches(&engine.client(), signals).await?.1);
    }
    engine.shutdown().await;
    bed.strip().await?;
    let slowest = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(Ratio::new("signals in batches, slowest round over median", slowest, median(rounds)))
}

/// How long it takes until an engine has run the step that a start, or a signal, of another process made runnable.
async fn elsewhere(place: &Place) -> Result<(f64, f64), BoxError> {
    let bed = place.bed("elsewhere.db").await?;
    let engine = sleepers(&bed, History::On).await?;
    let client = engine.client();
    let mut caller = Beside::start(Role::Call, &bed.url())?;
    let (mut starts, mut signals) = (Vec::new(), Vec::new());
    for _ in 0..CALLS {
        // Long enough for everything here to sleep again.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let called = Instant::now();
        let id = caller.tell("start")?;
        until(&client, &id, Status::AwaitingSignal).await?;
        starts.push(called.elapsed().as_secs_f64() * 1000.0);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let called = Instant::now();
        caller.tell(&id)?;
        until(&client, &id, Status::Done).await?;
        signals.push(called.elapsed().as_secs_f64() * 1000.0);
    }
    drop(caller);
    engine.shutdown().await;
    drop(client);
    bed.strip().await?;
    Ok((median(starts), median(signals)))
}

/// Processor time of an idle engine.
async fn idle(place: &Place) -> Result<f64, BoxError> {
    let bed = place.bed("idle.db").await?;
    let engine = sleepers(&bed, History::On).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, watched) = (cpu_time(), Duration::from_secs(10));
    tokio::time::sleep(watched).await;
    let percent = cpu_time().saturating_sub(before).as_secs_f64() / watched.as_secs_f64() * 100.0;
    engine.shutdown().await;
    bed.strip().await?;
    Ok(percent)
}

/// The processor time of this process, as Linux counts it, to a hundredth of a second; 0 elsewhere.
fn cpu_time() -> Duration {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return Duration::ZERO };
    // The program's name may hold spaces, and ends with the last bracket; its own and the kernel's time for it are the
    // 12th and 13th word after that, in hundredths of a second.
    let words = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
    let hundredths: u64 = words.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(hundredths * 10)
}

async fn sleepers(bed: &Bed, history: History) -> Result<Engine, BoxError> {
    let engine = Engine::on(bed.store.clone()).machine(Sleeper).queue("default", 1024).history(history);
    Ok(engine.start().await?)
}

async fn until(client: &Client, id: &str, status: Status) -> Result<(), BoxError> {
    let id = dormouse::InstanceId(id.parse()?);
    let started = Instant::now();
    while client.get(id).await?.is_none_or(|instance| instance.status != status) {
        tokio::time::sleep(Duration::from_micros(500)).await;
        if started.elapsed() > PATIENCE {
            return Err(format!("instance {id} did not become {status}").into());
        }
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
