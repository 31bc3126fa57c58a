//! A unit of a hundred thousand items. It takes a while, and tells its memory right if it runs alone:
//! `cargo test -p dormouse --all-features --test units_large -- --ignored --nocapture sqlite` (or `postgres`).

#[cfg(feature = "postgres")]
#[path = "conformance/postgres.rs"]
mod database;

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use dormouse::prelude::*;
use dormouse::{Engine, Interaction, Sending, Sent, Transport, Verdict};

const ITEMS: u64 = 100_000;
/// What it may take beside what the process had before, however many items there are.
const GROWTH_MIB_MAX: u64 = 200;

struct Sum;

#[derive(Serialize, Deserialize)]
enum State {
    Ask,
    Add,
}

impl Machine for Sum {
    const NAME: &'static str = "sum";
    type State = State;
    type Output = u64;

    async fn step(&self, state: State, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            State::Ask => {
                let unit = Unit::each(0..ITEMS).transport("echo").in_flight(500);
                Outcome::dispatch(unit, State::Add)
            }
            State::Add => {
                let mut verdicts = cx.unit_stream::<u64>().await?;
                let mut next = 0;
                while let Some(verdict) = verdicts.next().await? {
                    if verdict != Verdict::Completed(next) {
                        return Err(format!("item {next} is {verdict:?}").into());
                    }
                    next += 1;
                }
                Outcome::done(next)
            }
        })
    }
}

struct Echo;

impl Transport for Echo {
    fn send<'a>(&'a self, asked: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        Box::pin(async move { Sent::Answered(asked.request.clone()) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn a_hundred_thousand_items_on_sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("large.db").display());
    they_flow_through_in_bounded_memory_and_show_how_far_they_are(&url).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn a_hundred_thousand_items_on_postgres() {
    let database = database::Database::new("2030-01-01T00:00:00Z".parse().expect("a moment")).await;
    database.let_time_pass().await;
    they_flow_through_in_bounded_memory_and_show_how_far_they_are(&database.url).await;
}

async fn they_flow_through_in_bounded_memory_and_show_how_far_they_are(url: &str) {
    let sending = Sending { concurrency_max: 256, ..Sending::default() };
    let builder =
        Engine::open(url).await.expect("a store").machine(Sum).transport_with("echo", Echo, sending);
    let engine = builder.start().await.expect("it starts");
    let (client, started, before_kib) = (engine.client(), Instant::now(), peak_kib());
    let id = client.start::<Sum>(State::Ask).await.expect("a start");
    let mut seen = Vec::new();
    let counted = loop {
        match client.wait::<Sum>(id, Duration::from_secs(2)).await {
            Ok(counted) => break counted,
            Err(dormouse::Error::StillLive { .. }) => {
                let unit = client.unit(id).await.expect("a read");
                seen.extend(unit.map(|unit| unit.completed));
                let peak_mib = peak_kib() / 1024;
                println!("{:?}: {:?} of {ITEMS}, {peak_mib} MiB", started.elapsed(), seen.last());
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(counted, ITEMS);
    assert!(
        seen.is_sorted() && seen.windows(2).any(|pair| pair[0] < pair[1]),
        "it shows how far it is: {seen:?}"
    );
    let growth_mib = (peak_kib() - before_kib) / 1024;
    let peak_mib = peak_kib() / 1024;
    println!("{ITEMS} items in {:?}, {growth_mib} MiB more at the peak of {peak_mib}", started.elapsed());
    assert!(growth_mib < GROWTH_MIB_MAX, "{growth_mib} MiB");
    engine.shutdown().await;
}

/// The most memory the process ever had.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the peak is told");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}
