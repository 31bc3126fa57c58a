//! The loads: each on the same engine and file, one after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse::prelude::*;
use dormouse::store::{Filter, Store};
use dormouse::{Client, Engine, History, Inserted, InstanceId, NewSignal, Status, Target};

use super::bed::Place;
use super::report::{Figures, word};
use super::schedules;

/// How many steps may run at once.
const PLACES: usize = 1024;
/// Rows in one batch of a bulk insert.
const BATCH: usize = 256;
/// How many callers run at once in loads that make calls one by one.
const CALLERS: usize = 256;
/// How often the fan-out is measured in a round; the median counts.
const FAN_OUTS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) struct Noop;

impl Job for Noop {
    const NAME: &'static str = "noop";
    type Input = u64;
    type Output = ();

    async fn run(&self, _input: u64, _cx: &Context) -> Result<(), BoxError> {
        Ok(())
    }
}

struct Chain;

#[derive(Serialize, Deserialize)]
enum Counting {
    Count { left: u32 },
}

impl Machine for Chain {
    const NAME: &'static str = "chain";
    type State = Counting;
    type Output = ();

    async fn step(&self, Counting::Count { left }: Counting, _cx: &Context) -> StepResult<Self> {
        Ok(if left > 1 { Outcome::next(Counting::Count { left: left - 1 }) } else { Outcome::done(()) })
    }
}

pub(super) struct Sleeper;

#[derive(Serialize, Deserialize)]
pub(super) enum Sleeping {
    Start { order: u64 },
    Awake { order: u64 },
}

pub(super) const GO: Signal<u64> = Signal::named("payment_confirmed");

impl Machine for Sleeper {
    const NAME: &'static str = "sleeper";
    type State = Sleeping;
    type Output = u64;

    async fn step(&self, state: Sleeping, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Sleeping::Start { order } => Outcome::await_signal(GO, Sleeping::Awake { order }),
            Sleeping::Awake { order } => Outcome::done(order + cx.received(GO)?.iter().sum::<u64>()),
        })
    }
}

struct Nap;

#[derive(Serialize, Deserialize)]
enum Napping {
    Start { ms: u64 },
    Awake { due: jiff::Timestamp },
}

impl Machine for Nap {
    const NAME: &'static str = "nap";
    type State = Napping;
    /// How late it woke, in microseconds.
    type Output = i64;

    async fn step(&self, state: Napping, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Napping::Start { ms } => {
                let due = cx.now() + Duration::from_millis(ms);
                Outcome::sleep(due, Napping::Awake { due })
            }
            Napping::Awake { due } => Outcome::done(cx.now().duration_since(due).as_micros() as i64),
        })
    }
}

struct Parent;

#[derive(Serialize, Deserialize)]
enum Family {
    Spawn { children: u64 },
    Join,
}

impl Machine for Parent {
    const NAME: &'static str = "parent";
    type State = Family;
    type Output = usize;

    async fn step(&self, state: Family, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Family::Spawn { children } => {
                Outcome::spawn((0..children).map(NewInstance::job::<Noop>), Family::Join)
            }
            Family::Join => Outcome::done(cx.children().len()),
        })
    }
}

/// Runs every load once; `less` divides their size.
pub(super) async fn measure(place: &Place, history: History, less: u64) -> Result<Figures, BoxError> {
    let raw_limit_steps_per_s = place.raw_steps_per_s(200_000 / less).await?;
    let bed = place.bed("bench.db").await?;
    let store = bed.store.clone();
    let start = || {
        Engine::on(store.clone())
            .machine(Chain)
            .machine(Sleeper)
            .machine(Parent)
            .machine(Nap)
            .job(Noop)
            .queue("default", PLACES)
            .history(history)
            .start()
    };
    let (jobs_inserted_per_s, jobs_drained_per_s) = jobs(&store, history, 40_000 / less, start).await?;
    let engine = start().await?;
    let client = engine.client();
    let chain_steps_per_s = chain(&client, 1000, 20).await?;
    let (signal_p50_ms, signal_p99_ms) = round_trips(&client, 1000 / less).await?;
    let signal_storm_per_s = storm(&client, 5000).await?;
    let (signal_batches_taken_per_s, signal_batches_per_s) = signal_batches(&client, 20_000 / less).await?;
    let fanout_1000_ms = fan_out(&client).await?;
    let (timer_late_p50_ms, timer_late_p99_ms) = timers(&client, 100_000 / less, 200).await?;
    drop(client);
    engine.shutdown().await;
    drop(store);
    let (_, fsyncs) = bed.strip().await?;

    let bed = place.bed("schedules.db").await?;
    let engine =
        Engine::on(bed.store.clone()).job(Noop).queue("default", PLACES).history(history).start().await?;
    let (schedule_late_p50_ms, schedules_started_ms) =
        schedules::due_at_once(&engine.client(), 10_000 / less).await?;
    engine.shutdown().await;
    bed.strip().await?;

    let bed = place.bed("parked.db").await?;
    let engine = Engine::on(bed.store.clone())
        .machine(Sleeper)
        .queue("default", PLACES)
        .history(history)
        .start()
        .await?;
    let parked = 100_000 / less;
    let rss_before = rss_bytes();
    park(&engine.client(), parked).await?;
    let parked_rss_bytes = rss_bytes().saturating_sub(rss_before) as f64 / parked as f64;
    let parked_cpu_percent = idle_cpu_percent().await;
    engine.shutdown().await;
    let (parked_bytes, _) = bed.strip().await?;
    Ok(Figures {
        store: place.store_name(),
        history: word(history),
        jobs_inserted_per_s,
        jobs_drained_per_s,
        chain_steps_per_s,
        signal_p50_ms,
        signal_p99_ms,
        signal_storm_per_s,
        signal_batches_taken_per_s,
        signal_batches_per_s,
        fanout_1000_ms,
        timer_late_p50_ms,
        timer_late_p99_ms,
        schedule_late_p50_ms,
        schedules_started_ms,
        parked_bytes: parked_bytes as f64 / parked as f64,
        parked_rss_bytes,
        parked_cpu_percent,
        fsyncs,
        raw_limit_steps_per_s,
    })
}

/// Inserts jobs in batches while nothing runs, then starts an engine and drains them.
async fn jobs<S, E>(
    store: &Arc<dyn Store>,
    history: History,
    count: u64,
    start: S,
) -> Result<(f64, f64), BoxError>
where
    S: Fn() -> E,
    E: Future<Output = dormouse::Result<Engine>>,
{
    let mut new: Vec<NewInstance> = (0..count).map(NewInstance::job::<Noop>).collect();
    // Without an engine there is no default to inherit.
    new.iter_mut().for_each(|new| new.history = Some(history));
    let started = Instant::now();
    let last = insert(&Client::on(store.clone()), new).await?;
    let inserted = count as f64 / started.elapsed().as_secs_f64();
    let started = Instant::now();
    let engine = start().await?;
    until_all_ended(&engine.client(), last).await?;
    let drained = count as f64 / started.elapsed().as_secs_f64();
    engine.shutdown().await;
    Ok((inserted, drained))
}

async fn chain(client: &Client, instances: usize, steps: u32) -> Result<f64, BoxError> {
    client.pause_queue("default").await?;
    let new = (0..instances).map(|_| NewInstance::of::<Chain>(Counting::Count { left: steps }));
    let last = insert(client, new.collect()).await?;
    let started = Instant::now();
    client.resume_queue("default").await?;
    until_all_ended(client, last).await?;
    Ok((instances * steps as usize) as f64 / started.elapsed().as_secs_f64())
}

/// Measures from the call that signals a parked instance until the caller has its output, one at a time.
async fn round_trips(client: &Client, count: u64) -> Result<(f64, f64), BoxError> {
    let mut times = Vec::new();
    for order in 0..count {
        let id = client.start::<Sleeper>(Sleeping::Start { order }).await?;
        until_parked(client, id).await?;
        let started = Instant::now();
        client.signal(id, GO, 1).await?;
        client.wait::<Sleeper>(id, PATIENCE).await?;
        times.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
}

/// Signals thousands of parked instances from many callers, one call each, until all are done.
async fn storm(client: &Client, count: u64) -> Result<f64, BoxError> {
    let new = (0..count).map(|order| NewInstance::of::<Sleeper>(Sleeping::Start { order })).collect();
    let ids = insert_all(client, new).await?;
    until_parked(client, *ids.last().expect("at least one")).await?;
    for id in &ids {
        until_parked(client, *id).await?;
    }
    let last = *ids.last().expect("at least one");
    let started = Instant::now();
    let ids = Arc::new(ids);
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (client, ids) = (client.clone(), ids.clone());
            tokio::spawn(async move {
                for id in ids.iter().skip(caller).step_by(CALLERS) {
                    client.signal(*id, GO, 1).await?;
                }
                Ok::<_, dormouse::Error>(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    until_all_ended(client, last).await?;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// Signals parked instances in batches of 256, several in flight at once, until all signals are stored, and until all
/// instances are done.
pub(super) async fn signal_batches(client: &Client, count: u64) -> Result<(f64, f64), BoxError> {
    let new = (0..count).map(|order| NewInstance::of::<Sleeper>(Sleeping::Start { order })).collect();
    let ids = insert_all(client, new).await?;
    for id in &ids {
        until_parked(client, *id).await?;
    }
    let started = Instant::now();
    let mut batches = tokio::task::JoinSet::new();
    for batch in ids.chunks(BATCH) {
        if batches.len() == 4 {
            batches.join_next().await.expect("one is under way")??;
        }
        let (client, batch) = (client.clone(), batch.to_vec());
        batches.spawn(async move {
            let signal = NewSignal::of(GO, &1)?;
            client.signal_many(batch.into_iter().map(|id| (Target::Id(id), signal.clone()))).await
        });
    }
    while let Some(sent) = batches.join_next().await {
        sent??;
    }
    let per_s = || count as f64 / started.elapsed().as_secs_f64();
    let taken = per_s();
    until_all_ended(client, *ids.last().expect("at least one")).await?;
    Ok((taken, per_s()))
}

async fn fan_out(client: &Client) -> Result<f64, BoxError> {
    // The first one also waits for the database to plan what it has not run before.
    let mut took = Vec::with_capacity(FAN_OUTS);
    for _ in 0..FAN_OUTS {
        let started = Instant::now();
        let id = client.start::<Parent>(Family::Spawn { children: 1000 }).await?;
        let joined = client.wait::<Parent>(id, PATIENCE).await?;
        assert_eq!(joined, 1000, "every child is joined");
        took.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    took.sort_unstable_by(f64::total_cmp);
    Ok(took[took.len() / 2])
}

/// Short naps, one after the other, while many others are armed for later.
async fn timers(client: &Client, armed: u64, naps: u64) -> Result<(f64, f64), BoxError> {
    let later = Duration::from_secs(24 * 3600);
    let new = (0..armed).map(|_| NewInstance::of::<Nap>(Napping::Start { ms: 0 }).start_at(later));
    insert(client, new.collect()).await?;
    let mut late = Vec::new();
    for nap in 0..naps {
        let id = client.start::<Nap>(Napping::Start { ms: 5 + nap % 20 }).await?;
        late.push(client.wait::<Nap>(id, PATIENCE).await? as f64 / 1000.0);
    }
    late.sort_by(f64::total_cmp);
    Ok((late[late.len() / 2], late[late.len() * 99 / 100]))
}

async fn park(client: &Client, count: u64) -> Result<(), BoxError> {
    let new = (0..count).map(|order| NewInstance::of::<Sleeper>(Sleeping::Start { order })).collect();
    insert(client, new).await?;
    loop {
        let stats = client.stats().await?;
        if stats.count(Status::AwaitingSignal) == count {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Inserts in batches, several in flight at once, and returns the last id.
async fn insert(client: &Client, new: Vec<NewInstance>) -> Result<InstanceId, BoxError> {
    Ok(insert_all(client, new).await?.into_iter().max().expect("at least one"))
}

async fn insert_all(client: &Client, mut new: Vec<NewInstance>) -> Result<Vec<InstanceId>, BoxError> {
    let mut batches = tokio::task::JoinSet::new();
    let mut ids = Vec::with_capacity(new.len());
    while !new.is_empty() || !batches.is_empty() {
        while batches.len() < 4 && !new.is_empty() {
            let batch = new.split_off(new.len().saturating_sub(BATCH));
            let client = client.clone();
            batches.spawn(async move { client.start_many(batch).await });
        }
        if let Some(inserted) = batches.join_next().await {
            ids.extend(inserted??.iter().map(Inserted::id));
        }
    }
    Ok(ids)
}

/// Waits for the last one, and then for the stragglers.
async fn until_all_ended(client: &Client, last: InstanceId) -> Result<(), BoxError> {
    client.wait_end(last, PATIENCE).await?;
    loop {
        let mut live = 0;
        for status in [Status::Runnable, Status::Executing, Status::AwaitingSignal] {
            let filter = Filter { status: Some(status), limit: 1, ..Filter::default() };
            live += client.list(filter).await?.instances.len();
        }
        if live == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn until_parked(client: &Client, id: InstanceId) -> Result<(), BoxError> {
    while client.get(id).await?.is_none_or(|instance| instance.status != Status::AwaitingSignal) {
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    Ok(())
}

/// Resident memory, as Linux counts it; 0 elsewhere.
fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Processor time used while everything is parked, as Linux counts it, in hundredths of a second.
async fn idle_cpu_percent() -> f64 {
    let ticks = || {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields = stat.rsplit(") ").next().unwrap_or_default();
        fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>()
    };
    let (before, watched) = (ticks(), Duration::from_secs(3));
    tokio::time::sleep(watched).await;
    (ticks() - before) as f64 / watched.as_secs_f64()
}
