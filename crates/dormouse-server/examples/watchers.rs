//! Measures what idle watchers cost a busy engine: the same load with and without thousands of them, in turn. Also
//! reports processor time, which does not depend on other load on the machine.
//!
//! `cargo run --release -p dormouse-server --example watchers -- 10000`
//!
//! The watchers are in a process of their own, as each end of a connection is an open file. Each watches an instance
//! to which nothing happens, as the page of an instance does.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use dormouse::prelude::*;
use dormouse::{Client, Engine};
use dormouse_server::{Access, AtOnce, Server, Stop, listen};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const JOBS: u64 = 40_000;
const BATCH: u64 = 250;
const ROUNDS: usize = 5;
/// How many connections are opened at once.
const AT_A_TIME: usize = 64;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [word, address, count] if word == "watch" => watch(address.parse()?, count.parse()?).await,
        [count] => measure(count.parse()?).await,
        _ => Err("usage: watchers COUNT, such as watchers 10000".into()),
    }
}

struct Noop;

impl Job for Noop {
    const NAME: &'static str = "noop";
    type Input = u64;
    type Output = ();

    async fn run(&self, _input: u64, _cx: &Context) -> Result<(), BoxError> {
        Ok(())
    }
}

async fn measure(count: usize) -> Result<(), BoxError> {
    let dir = tempfile::tempdir_in(".")?;
    let url = format!("sqlite:{}", dir.path().join("watched.db").display());
    let engine = Engine::open(&url).await?.job(Noop).queue("default", 256).start().await?;
    // As `serve` does, so that a connection costs what it costs there.
    let server = Server::new(engine.client(), Access::open_on_loopback())?;
    let server = server.streams_at_once(AtOnce::of(4 * count));
    let mut stop = Stop::listen()?;
    let (ready, address) = tokio::sync::oneshot::channel();
    let bind = SocketAddr::from(([127, 0, 0, 1], 0));
    tokio::spawn(async move {
        let tell = |address| {
            // The caller waits for it in the next line.
            let _ = ready.send(address);
        };
        listen(server, bind, &mut stop, tell).await
    });
    let address = address.await?;

    let client = engine.client();
    work(&client).await?;
    let (mut without, mut with, mut bytes) = (Vec::new(), Vec::new(), 0);
    for round in 1..=ROUNDS {
        without.push(work(&client).await?);
        let before = rss_bytes();
        let watchers = Watchers::open(address, count)?;
        bytes = rss_bytes().saturating_sub(before).max(bytes);
        with.push(work(&client).await?);
        drop(watchers);
        println!("round {round}: {} without, {} with {count} watchers", without[round - 1], with[round - 1]);
    }
    let [without, with] = [median(without), median(with)];
    println!("median: {without} without, {with} with {count} watchers");
    println!("memory of the server for each watcher: {} bytes", bytes / count.max(1) as u64);
    engine.shutdown().await;
    Ok(())
}

/// The cost of a load.
#[derive(Clone, Copy)]
struct Figures {
    jobs_per_s: f64,
    cpu_us_per_job: f64,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0} jobs/s at {:.1} µs of processor time each", self.jobs_per_s, self.cpu_us_per_job)
    }
}

/// Starts jobs and waits for the last of them.
async fn work(client: &Client) -> Result<Figures, BoxError> {
    let (started, cpu) = (Instant::now(), cpu_us());
    let mut last = None;
    for batch in 0..JOBS / BATCH {
        let new = (0..BATCH).map(|job| NewInstance::job::<Noop>(batch * BATCH + job));
        last = client.start_many(new).await?.last().map(dormouse::Inserted::id);
    }
    client.wait_end(last.expect("at least one"), std::time::Duration::from_secs(120)).await?;
    let jobs_per_s = JOBS as f64 / started.elapsed().as_secs_f64();
    Ok(Figures { jobs_per_s, cpu_us_per_job: (cpu_us() - cpu) / JOBS as f64 })
}

fn median(figures: Vec<Figures>) -> Figures {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Figures {
        jobs_per_s: middle(figures.iter().map(|round| round.jobs_per_s).collect()),
        cpu_us_per_job: middle(figures.iter().map(|round| round.cpu_us_per_job).collect()),
    }
}

/// Processor time of this process, as Linux counts it, in hundredths of a second.
fn cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() * 10_000.0
}

/// Resident memory, as Linux counts it.
fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// The other process, which hangs up when this is dropped.
struct Watchers(Child);

impl Watchers {
    fn open(address: SocketAddr, count: usize) -> Result<Self, BoxError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["watch", &address.to_string(), &count.to_string()]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut said = String::new();
        BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut said)?;
        if said.trim() != "ready" {
            return Err(format!("the watchers did not get through: {said:?}").into());
        }
        Ok(Self(process))
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        // It ends when this process hangs up.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Opens the watchers, and reports when all of them are connected.
async fn watch(address: SocketAddr, count: usize) -> Result<(), BoxError> {
    let mut watching = Vec::with_capacity(count);
    while watching.len() < count {
        let few: JoinSet<_> = (0..AT_A_TIME.min(count - watching.len())).map(|_| open(address)).collect();
        for opened in few.join_all().await {
            watching.push(opened?);
        }
    }
    println!("ready");
    std::io::stdout().flush()?;
    tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin())).await??;
    Ok(())
}

/// A stream whose first bytes have arrived.
async fn open(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /v1/events?instance=1 HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let (mut heard, mut bytes) = (Vec::new(), [0; 1024]);
    while !heard.windows(8).any(|part| part == b"watching") {
        match stream.read(&mut bytes).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => heard.extend_from_slice(&bytes[..read]),
        }
    }
    Ok(stream)
}
